#include "models/text/jinja/operators.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/representation.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe::jinja {
namespace {

using Int = std::int64_t;

[[noreturn]] void throw_overflow() { throw invalid("an integer of more than 64 bits"); }

Int floor_divide(Int left, Int right) {
  if (right == 0) throw invalid("division by zero");
  if (left == INT64_MIN && right == -1) throw_overflow();
  return left / right - ((left % right != 0 && (left < 0) != (right < 0)) ? 1 : 0);
}

Int modulo(Int left, Int right) {
  if (right == 0) throw invalid("division by zero");
  if (right == -1) return 0;
  const Int remainder = left % right;
  return remainder != 0 && (remainder < 0) != (right < 0) ? remainder + right : remainder;
}

Value power(const Value& left, const Value& right) {
  if (!left.is_integer() || !right.is_integer() || right.integer() < 0) {
    const double base = left.number(), exponent = right.number();
    const double result = std::pow(base, exponent);
    if (std::isfinite(base) && std::isfinite(exponent) && !std::isfinite(result))
      throw invalid("{} ** {} is no real number", base, exponent);
    return result;
  }
  Int result = 1, base = left.integer();
  for (Int exponent = right.integer(); exponent > 0; exponent >>= 1) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) throw_overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) throw_overflow();
  }
  return result;
}

Value on_integers(BinaryOperator op, Int left, Int right) {
  Int result = 0;
  bool overflows = false;
  switch (op) {
    case BinaryOperator::add:
      overflows = __builtin_add_overflow(left, right, &result);
      break;
    case BinaryOperator::subtract:
      overflows = __builtin_sub_overflow(left, right, &result);
      break;
    case BinaryOperator::multiply:
      overflows = __builtin_mul_overflow(left, right, &result);
      break;
    case BinaryOperator::floor_divide:
      return floor_divide(left, right);
    case BinaryOperator::modulo:
      return modulo(left, right);
    default:
      if (right == 0) throw invalid("division by zero");
      return static_cast<double>(left) / static_cast<double>(right);
  }
  if (overflows) throw_overflow();
  return result;
}

Value on_numbers(BinaryOperator op, double left, double right) {
  switch (op) {
    case BinaryOperator::add:
      return left + right;
    case BinaryOperator::subtract:
      return left - right;
    case BinaryOperator::multiply:
      return left * right;
    default:
      break;
  }
  if (right == 0) throw invalid("division by zero");
  if (op == BinaryOperator::divide) return left / right;
  double remainder = std::fmod(left, right);
  double quotient = (left - remainder) / right;
  if (remainder == 0) {
    remainder = std::copysign(0.0, right);
  } else if ((right < 0) != (remainder < 0)) {
    remainder += right;
    quotient -= 1;
  }
  if (op == BinaryOperator::modulo) return remainder;
  if (quotient == 0) return std::copysign(0.0, left / right);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

std::string repeated(const std::string& text, Int times) {
  std::string out;
  if (times <= 0 || text.empty()) return out;
  check_text_size(static_cast<std::size_t>(times) > max_text_bytes
                      ? max_text_bytes + 1
                      : text.size() * static_cast<std::size_t>(times));
  for (Int i = 0; i < times; ++i) out += text;
  return out;
}

Value repeated(const Sequence& sequence, Int times) {
  const auto size = static_cast<Int>(sequence.items.size());
  if (times > 0 && size > 0 && times > static_cast<Int>(max_items) / size)
    check_item_count(max_items + 1);
  std::vector<Value> items;
  for (Int i = 0; i < (size > 0 ? times : 0); ++i)
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  return sequence.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

/// Returns `factor` copies of a string, list or tuple; none for other values.
std::optional<Value> multiply_sequence(const Value& value, const Value& factor) {
  if (!factor.is_integer()) return std::nullopt;
  if (value.text()) {
    std::string text = repeated(*value.text(), factor.integer());
    return value.is_markup() ? Value::markup(std::move(text)) : Value(std::move(text));
  }
  const Sequence* sequence = value.sequence();
  if (!sequence || !(sequence->is_list() || sequence->is_tuple())) return std::nullopt;
  return repeated(*sequence, factor.integer());
}

Value joined_texts(const Value& left, const Value& right) {
  check_text_size(left.text()->size() + right.text()->size());
  if (!left.is_markup() && !right.is_markup()) return *left.text() + *right.text();
  const auto escaped = [](const Value& value) {
    return value.is_markup() ? *value.text() : escape_html(*value.text());
  };
  return Value::markup(escaped(left) + escaped(right));
}

bool can_be_joined(const Sequence* left, const Sequence* right) {
  return left && right &&
         ((left->is_list() && right->is_list()) || (left->is_tuple() && right->is_tuple()));
}

}  // namespace

void require_defined(const Value& value) {
  if (const auto* undefined = value.get_if<Undefined>()) throw invalid("{}", undefined->why);
}

Value apply(BinaryOperator op, const Value& left, const Value& right) {
  require_defined(left);
  require_defined(right);
  if (left.is_number() && right.is_number()) {
    if (op == BinaryOperator::power) return power(left, right);
    if (left.is_integer() && right.is_integer())
      return on_integers(op, left.integer(), right.integer());
    return on_numbers(op, left.number(), right.number());
  }
  if (op == BinaryOperator::add && left.text() && right.text()) return joined_texts(left, right);
  if (op == BinaryOperator::add && can_be_joined(left.sequence(), right.sequence())) {
    check_item_count(left.count() + right.count());
    std::vector<Value> items = left.sequence()->items;
    items.insert(items.end(), right.sequence()->items.begin(), right.sequence()->items.end());
    return left.sequence()->is_tuple() ? Value::tuple(std::move(items))
                                       : Value::list(std::move(items));
  }
  if (op == BinaryOperator::multiply) {
    if (auto product = multiply_sequence(left, right)) return *std::move(product);
    if (auto product = multiply_sequence(right, left)) return *std::move(product);
  }
  constexpr std::string_view symbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  throw invalid("cannot compute {} {} {}", left.type_name(), symbols[static_cast<int>(op)],
                right.type_name());
}

Value negate(const Value& value) {
  require_defined(value);
  if (value.is_integer()) return on_integers(BinaryOperator::subtract, 0, value.integer());
  return -value.number();
}

bool compare(Comparison comparison, const Value& left, const Value& right) {
  switch (comparison) {
    case Comparison::equal:
      return left.equals(right);
    case Comparison::unequal:
      return !left.equals(right);
    case Comparison::in:
      return right.contains(left);
    case Comparison::not_in:
      return !right.contains(left);
    default:
      break;
  }
  require_defined(left);
  require_defined(right);
  switch (comparison) {
    case Comparison::less:
      return left.less_than(right);
    case Comparison::less_equal:
      return left.less_than(right) || left.equals(right);
    case Comparison::greater:
      return right.less_than(left);
    default:
      return right.less_than(left) || left.equals(right);
  }
}

Value slice(const Value& value, const Value& start, const Value& stop, const Value& step) {
  require_defined(value);
  const Sequence* sequence = value.sequence();
  if (!value.text() && (!sequence || sequence->is_view()))
    throw invalid("a {} cannot be sliced", value.type_name());
  if (sequence && sequence->kind == Sequence::Kind::range)
    throw Failure{ErrorCode::unsupported, "slicing a range"};
  std::u32string characters;
  if (value.text()) characters = text::to_code_points(*value.text());
  const Int size = static_cast<Int>(value.text() ? characters.size() : sequence->items.size());
  const Int by = step.is_none() ? 1 : step.integer();
  if (by == 0) throw invalid("a slice with step 0");
  const auto bound = [&](const Value& given, Int absent) {
    if (given.is_none()) return absent;
    Int at = given.integer();
    if (at < 0) at = at < -size ? -1 : at + size;
    const Int least = by < 0 ? -1 : 0, most = by < 0 ? size - 1 : size;
    return std::max(least, std::min(at, most));
  };
  const Int from = bound(start, by < 0 ? size - 1 : 0), to = bound(stop, by < 0 ? -1 : size);
  std::u32string picked;
  std::vector<Value> items;
  const Int count =
      by > 0 ? (to > from ? (to - from - 1) / by + 1 : 0)
             : (from > to ? (from - to - 1) / (by == INT64_MIN ? INT64_MAX : -by) + 1 : 0);
  for (Int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(from + i * by);
    if (value.text()) {
      picked += characters[at];
    } else {
      items.push_back(sequence->items[at]);
    }
  }
  if (value.is_markup()) return Value::markup(text::to_utf8(picked));
  if (value.text()) return text::to_utf8(picked);
  return sequence->is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

}  // namespace troupe::jinja
