#include "models/text/regex.hpp"

#include <algorithm>
#include <cstdint>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace troupe::text {
namespace {

// Unicode White_Space, and its complement. PCRE2's own \s also has U+180E.
constexpr std::string_view space_set =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view non_space_set =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view word_set = R"(\p{L}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view hex_set = "0-9a-fA-F";

std::string pcre2_message(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

constexpr std::uint32_t most_match_kib = 256 << 10;  // memory for the interpreter's backtracking

/// The most steps that a match in `bytes` of text may take, so that exponential backtracking is cut
/// off. Each alternative of a published pattern takes a few steps a byte.
std::uint32_t most_match_steps(std::size_t bytes) {
  constexpr std::size_t steps_a_byte = 32, at_least = 1'000'000;
  return static_cast<std::uint32_t>(
      std::min<std::size_t>(at_least + steps_a_byte * bytes, UINT32_MAX));
}

struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

Result<std::string> translate_classes(std::string_view pattern) {
  std::string out;
  int class_depth = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\' || i + 1 == pattern.size()) {
      if (c == '[') ++class_depth;
      if (c == ']' && class_depth > 0) --class_depth;
      if (c == '&' && class_depth > 0 && pattern.substr(i, 2) == "&&")
        return fail(ErrorCode::unsupported, "an intersection of classes in the regex {}", pattern);
      out += c;
      continue;
    }
    const char escaped = pattern[++i];
    const bool in_class = class_depth > 0;
    const auto set = [&](std::string_view members, bool negated) {
      if (in_class) {
        out += members;
      } else {
        out.append(negated ? "[^" : "[").append(members).append("]");
      }
    };
    if (escaped == 's') {
      set(space_set, false);
    } else if (escaped == 'S') {
      in_class ? set(non_space_set, false) : set(space_set, true);
    } else if (escaped == 'w') {
      set(word_set, false);
    } else if (escaped == 'h') {
      set(hex_set, false);
    } else if ((escaped == 'W' || escaped == 'H') && in_class) {
      return fail(ErrorCode::unsupported, "\\{} within a class in the regex {}", escaped, pattern);
    } else if (escaped == 'W' || escaped == 'H') {
      set(escaped == 'W' ? word_set : hex_set, true);
    } else {
      out += c;
      out += escaped;
    }
  }
  return out;
}

void Regex::Free::operator()(void* code) const { pcre2_code_free(static_cast<pcre2_code*>(code)); }

Result<Regex> Regex::compile(std::string_view pattern) {
  TROUPE_TRY(const std::string translated, translate_classes(pattern));
  int error = 0;
  PCRE2_SIZE place = 0;
  Regex regex;
  // \C would match a byte, and so split characters.
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &place, nullptr);
  if (code == nullptr)
    return fail(ErrorCode::unsupported, "regex {}: {} at {}", translated, pcre2_message(error),
                place);
  regex.code_.reset(code);
  // If this fails (a kernel that forbids writable code), matching works without it, only slower.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return regex;
}

Result<> Regex::split(std::string_view text,
                      const std::function<void(std::string_view, bool)>& on_part) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const std::unique_ptr<pcre2_match_data, FreeMatch> data(pcre2_match_data_create(1, nullptr));
  const std::unique_ptr<pcre2_match_context, FreeContext> context(
      pcre2_match_context_create(nullptr));
  if (!data || !context) return fail(ErrorCode::resource_exhausted, "no memory to match a regex");
  pcre2_set_match_limit(context.get(), most_match_steps(text.size()));
  pcre2_set_heap_limit(context.get(), most_match_kib);
  const auto emit = [&](std::size_t from, std::size_t to, bool is_match) {
    if (from < to) on_part(text.substr(from, to - from), is_match);
  };
  std::size_t emitted = 0;
  for (std::size_t from = 0; from <= text.size();) {
    int rc = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data.get(),
                         context.get());
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       data.get(), context.get());
    }
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      return fail(ErrorCode::resource_exhausted, "cannot split {} bytes of text: {}", text.size(),
                  pcre2_message(rc));
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    emit(emitted, range[0], false);
    emit(range[0], range[1], true);
    emitted = range[1];
    from = range[1];
    if (range[0] == range[1]) {
      // An empty match: continue after the next character.
      ++from;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
    }
  }
  emit(emitted, text.size(), false);
  return {};
}

}  // namespace troupe::text
