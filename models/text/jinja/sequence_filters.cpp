#include <algorithm>

#include "models/text/jinja/builtins.hpp"
#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/filter_use.hpp"
#include "models/text/jinja/operators.hpp"
#include "models/text/unicode/case_mapping.hpp"

namespace troupe::jinja {
namespace {

/// Follows the dotted `path` of attributes, or an index, from `item`.
Value follow(const FilterUse& use, Value item, const Value& path) {
  use.interpreter.charge(3);
  if (!path.text()) return use.interpreter.subscript(item, path);
  std::string_view rest = *path.text();
  for (bool is_last = false; !is_last;) {
    const auto dot = std::min(rest.find('.'), rest.size());
    const std::string part(rest.substr(0, dot));
    const bool is_index = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    constexpr std::size_t longest_index = 18;
    if (is_index && part.size() > longest_index) throw invalid("the index {}", part);
    item = use.interpreter.subscript(
        item, is_index ? Value(static_cast<std::int64_t>(std::stoll(part))) : Value(part));
    is_last = dot == rest.size();
    rest = is_last ? "" : rest.substr(dot + 1);
  }
  return item;
}

Value in_lower_case(const FilterUse& use, const Value& value) {
  if (!value.text()) return value;
  use.interpreter.charge_characters(value.text()->size());
  return text::to_lower(*value.text());
}

/// The key by which items are compared: an attribute (or the item, if `path` is null), in lower
/// case unless `with_case`.
Value key_of(const FilterUse& use, const Value& item, const Value* path, bool with_case) {
  Value key = path && !path->is_none() ? follow(use, item, *path) : item;
  return with_case ? key : in_lower_case(use, key);
}

struct Keyed {
  Value key, item;
};

void sort_by_key(const FilterUse& use, std::vector<Keyed>& keyed, bool is_reversed) {
  std::size_t levels = 1, weight = 0;
  while ((keyed.size() >> levels) > 0) ++levels;
  for (const Keyed& item : keyed)
    weight += std::min<std::size_t>(item.key.extent().weight, 1 << 30);
  use.interpreter.charge(weight * levels);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    return is_reversed ? b.key.less_than(a.key) : a.key.less_than(b.key);
  });
}

Value items_of(std::vector<Keyed> keyed) {
  std::vector<Value> out;
  for (Keyed& item : keyed) out.push_back(std::move(item.item));
  return Value::list(std::move(out));
}

/// Makes an iterator over the items that `fill(items)` appends. If it fails, taking the next item
/// throws.
template <class Fill>
Value iterator_over(Fill&& fill) {
  std::vector<Value> items;
  std::optional<Failure> failure;
  try {
    fill(items);
  } catch (Failure& caught) {
    if (caught.code == ErrorCode::resource_exhausted) throw;
    failure = std::move(caught);
  }
  return Value::iterator(std::move(items), std::move(failure));
}

Value join(const FilterUse& use) {
  const Value* path = use.bound[1];
  const std::string separator = use.bound[0] ? use.bound[0]->to_string() : "";
  std::string out;
  bool is_first = true;
  for (const Value& item : use.items()) {
    if (!is_first) out += separator;
    is_first = false;
    out += use.interpreter.text_of(path && !path->is_none() ? follow(use, item, *path) : item);
    check_text_size(out.size());
  }
  return out;
}

Value first(const FilterUse& use) {
  if (Iterator* once = use.operand.iterator())
    if (const Value* item = once->take()) return *item;
  const auto items = use.items();
  return items.empty() ? Value::undefined("the first item of nothing") : items.front();
}

void require_reversible(const Value& value) {
  if (value.iterator()) throw invalid("the items of a generator cannot be reversed");
}

Value last(const FilterUse& use) {
  require_reversible(use.operand);
  const auto items = use.items();
  return items.empty() ? Value::undefined("the last item of nothing") : items.back();
}

Value list(const FilterUse& use) {
  auto items = use.items();
  use.interpreter.charge_items(items.size());
  return Value::list(std::move(items));
}

void require_dict(const Value& value) {
  if (!value.dict()) throw invalid("a mapping is needed, not a {}", value.type_name());
}

Value items(const FilterUse& use) {
  return iterator_over([&](std::vector<Value>& pairs) {
    if (use.operand.is_undefined()) return;
    require_dict(use.operand);
    use.interpreter.charge_items(2 * use.operand.count());
    for (const auto& [key, value] : use.operand.dict()->entries)
      pairs.push_back(Value::tuple({key, value}));
  });
}

/// map(attribute=...): follows `path` from every item.
void map_attribute(const FilterUse& use, std::vector<Value>& out) {
  const Bound bound("map", "attribute default=", use.arguments);
  const Value* fallback = bound[1];
  for (const Value& item : use.items()) {
    Value found = follow(use, item, *bound[0]);
    if (found.is_undefined() && fallback && !fallback->is_none()) found = *fallback;
    out.push_back(std::move(found));
  }
}

void map_filter(const FilterUse& use, std::vector<Value>& out) {
  Arguments rest = use.arguments;
  const std::string filter = rest.positional.front().to_string();
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : use.items()) {
    use.interpreter.charge(1);
    if (item.text()) use.interpreter.charge_text(item.text()->size());
    out.push_back(apply_filter(use.interpreter, filter, item, rest));
    use.interpreter.charge_made(out.back());
  }
}

Value map(const FilterUse& use) {
  return iterator_over([&](std::vector<Value>& out) {
    if (!use.operand.is_true()) return;
    if (use.arguments.positional.empty()) {
      map_attribute(use, out);
    } else {
      map_filter(use, out);
    }
  });
}

/// select, reject, selectattr and rejectattr: the items for which a test holds (or does not).
void pick(const FilterUse& use, bool by_attribute, bool keep_if, std::vector<Value>& out) {
  if (!use.operand.is_true()) return;
  Arguments rest = use.arguments;
  const auto take = [&]() -> std::optional<Value> {
    if (rest.positional.empty()) return std::nullopt;
    Value front = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return front;
  };
  const auto path = by_attribute ? take() : std::nullopt;
  if (by_attribute && !path) throw invalid("no attribute to select by");
  const auto test = take();
  if (!test && !rest.named.empty()) throw invalid("named arguments without a test");
  for (const Value& item : use.items()) {
    const Value subject = path ? follow(use, item, *path) : item;
    use.interpreter.charge(1);
    const bool holds =
        test ? apply_test(use.interpreter, test->to_string(), subject, rest) : subject.is_true();
    if (holds == keep_if) out.push_back(item);
  }
}

template <bool by_attribute, bool keep_if>
Value pick(const FilterUse& use) {
  return iterator_over([&](std::vector<Value>& out) { pick(use, by_attribute, keep_if, out); });
}

Value unique(const FilterUse& use) {
  return iterator_over([&](std::vector<Value>& out) {
    std::vector<Value> keys;
    for (const Value& item : use.items()) {
      Value key = key_of(use, item, use.bound[1], use.bound.is_true(0));
      key.require_hashable();
      use.interpreter.charge(keys.size() / 16);
      use.interpreter.charge_walk(key);
      if (std::any_of(keys.begin(), keys.end(), [&](const Value& k) { return k.equals(key); }))
        continue;
      keys.push_back(std::move(key));
      out.push_back(item);
    }
  });
}

/// The key of `item` by the attributes in `paths`, separated by commas.
Value sort_key(const FilterUse& use, const Value& item, const Value* paths, bool with_case) {
  // A list even for one key, since Python orders lists by the first items that differ.
  if (!paths || !paths->text()) return Value::list({key_of(use, item, paths, with_case)});
  std::vector<Value> keys;
  std::string_view rest = *paths->text();
  for (bool is_last = false; !is_last;) {
    const auto comma = std::min(rest.find(','), rest.size());
    const Value path = rest.substr(0, comma);
    keys.push_back(key_of(use, item, &path, with_case));
    is_last = comma == rest.size();
    rest = is_last ? "" : rest.substr(comma + 1);
  }
  return Value::list(std::move(keys));
}

Value sort(const FilterUse& use) {
  std::vector<Keyed> keyed;
  for (const Value& item : use.items())
    keyed.push_back({sort_key(use, item, use.bound[2], use.bound.is_true(1)), item});
  sort_by_key(use, keyed, use.bound.is_true(0));
  return items_of(std::move(keyed));
}

Value dict_sort(const FilterUse& use) {
  require_defined(use.operand);
  require_dict(use.operand);
  const std::string by = use.bound[1] ? use.bound[1]->to_string() : "key";
  if (by != "key" && by != "value") throw invalid("dictsort sorts by 'key' or 'value'");
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : use.operand.dict()->entries) {
    const Value& subject = by == "key" ? key : value;
    keyed.push_back(
        {use.bound.is_true(0) ? subject : in_lower_case(use, subject), Value::tuple({key, value})});
  }
  sort_by_key(use, keyed, use.bound.is_true(2));
  return items_of(std::move(keyed));
}

Value group_by(const FilterUse& use) {
  const bool with_case = use.bound.is_true(2);
  const auto found = [&](const Value& item) {
    Value value = follow(use, item, *use.bound[0]);
    const Value* fallback = use.bound[1];
    return value.is_undefined() && fallback && !fallback->is_none() ? *fallback : value;
  };
  std::vector<Keyed> keyed;
  for (const Value& item : use.items()) {
    const Value key = found(item);
    keyed.push_back({with_case ? key : in_lower_case(use, key), item});
  }
  sort_by_key(use, keyed, false);
  std::vector<Value> groups;
  for (std::size_t from = 0, to = 0; from < keyed.size(); from = to) {
    std::vector<Value> members;
    for (; to < keyed.size() && keyed[to].key.equals(keyed[from].key); ++to)
      members.push_back(keyed[to].item);
    const Value key = with_case ? keyed[from].key : found(members.front());
    groups.push_back(
        Value::sequence(Sequence::Kind::group, {key, Value::list(std::move(members))}));
    to = std::max(to, from + 1);
  }
  return Value::list(std::move(groups));
}

Value batch(const FilterUse& use) {
  return iterator_over([&](std::vector<Value>& batches) {
    const std::int64_t size = use.bound[0]->integer();
    std::vector<Value> present;
    for (const Value& item : use.items()) {
      if (static_cast<std::int64_t>(present.size()) == size)
        batches.push_back(Value::list(std::exchange(present, {})));
      present.push_back(item);
    }
    if (present.empty()) return;
    const Value* fill = use.bound[1];
    if (fill && !fill->is_none() && static_cast<std::int64_t>(present.size()) < size) {
      check_item_count(static_cast<std::size_t>(size));
      use.interpreter.charge_items(static_cast<std::size_t>(size));
      present.resize(static_cast<std::size_t>(size), *fill);
    }
    batches.push_back(Value::list(std::move(present)));
  });
}

Value slice_filter(const FilterUse& use) {
  return iterator_over([&](std::vector<Value>& slices) {
    const auto items = use.items();
    const std::int64_t given = use.bound[0]->integer();
    if (given == 0) throw invalid("slice into 0 lists");
    const auto count = static_cast<std::size_t>(std::max<std::int64_t>(given, 0));
    check_item_count(count);
    use.interpreter.charge_items(count + items.size());
    const Value* fill = use.bound[1];
    auto at = items.begin();
    for (std::size_t i = 0; i < count; ++i) {
      const bool has_one_more = i < items.size() % count;
      const auto end = at + static_cast<std::ptrdiff_t>(items.size() / count + has_one_more);
      std::vector<Value> slice(at, end);
      if (fill && !fill->is_none() && !has_one_more) slice.push_back(*fill);
      slices.push_back(Value::list(std::move(slice)));
      at = end;
    }
  });
}

Value reverse(const FilterUse& use) {
  if (use.operand.text()) {
    use.interpreter.charge_walk(use.operand);
    return slice(use.operand, {}, {}, Value(std::int64_t{-1}));
  }
  const bool is_once = use.operand.iterator() != nullptr;
  auto items = use.items();
  std::reverse(items.begin(), items.end());
  use.interpreter.charge_items(items.size());
  return is_once ? Value::list(std::move(items)) : Value::iterator(std::move(items));
}

Value sum(const FilterUse& use) {
  Value total = use.bound[1] ? *use.bound[1] : Value(std::int64_t{0});
  if (total.text()) throw invalid("sum() does not join strings");
  const Value* path = use.bound[0];
  for (const Value& item : use.items()) {
    total = apply(BinaryOperator::add, total,
                  path && !path->is_none() ? follow(use, item, *path) : item);
    use.interpreter.charge_items(total.count());
  }
  return total;
}

Value extreme(const FilterUse& use, bool smallest) {
  std::vector<Keyed> keyed;
  for (const Value& item : use.items()) {
    keyed.push_back({key_of(use, item, use.bound[1], use.bound.is_true(0)), item});
    use.interpreter.charge_walk(keyed.back().key);
  }
  if (keyed.empty()) return Value::undefined("the extreme item of nothing");
  const auto is_less = [](const Keyed& a, const Keyed& b) { return a.key.less_than(b.key); };
  return (smallest ? std::min_element(keyed.begin(), keyed.end(), is_less)
                   : std::max_element(keyed.begin(), keyed.end(), is_less))
      ->item;
}

Value min(const FilterUse& use) { return extreme(use, true); }
Value max(const FilterUse& use) { return extreme(use, false); }

constexpr FilterRow rows[] = {
    {"batch", "linecount fill_with=", batch},
    {"dictsort", "case_sensitive= by= reverse=", dict_sort},
    {"first", "", first},
    {"groupby", "attribute default= case_sensitive=", group_by},
    {"items", "", items},
    {"join", "d= attribute=", join},
    {"last", "", last},
    {"list", "", list},
    {"map", "*", map},
    {"max", "case_sensitive= attribute=", max},
    {"min", "case_sensitive= attribute=", min},
    {"reject", "*", pick<false, false>},
    {"rejectattr", "*", pick<true, false>},
    {"reverse", "", reverse},
    {"select", "*", pick<false, true>},
    {"selectattr", "*", pick<true, true>},
    {"slice", "slices fill_with=", slice_filter},
    {"sort", "reverse= case_sensitive= attribute=", sort},
    {"sum", "attribute= start=", sum},
    {"unique", "case_sensitive= attribute=", unique},
};

}  // namespace

std::span<const FilterRow> sequence_filters() { return rows; }

}  // namespace troupe::jinja
