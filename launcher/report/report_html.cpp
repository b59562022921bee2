#include "launcher/report/report_html.hpp"

#include <string_view>

#include "launcher/report/html_escaped.hpp"
#include "launcher/report/page.hpp"

namespace troupe {
namespace {

/// JSON that may stand in a script element: nothing in it ends the element or begins a comment, and
/// the two line ends of Unicode that JavaScript knows are escaped.
std::string embeddable(const nlohmann::ordered_json& value) {
  const std::string json =
      value.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<' || c == '>' || c == '&') {
      text += c == '<' ? "\\u003c" : c == '>' ? "\\u003e" : "\\u0026";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

std::string report_html(const nlohmann::ordered_json& report) {
  // Through the dump, which replaces bytes that are no UTF-8.
  const std::string title =
      nlohmann::ordered_json::parse(embeddable(report.at("job").at("name"))).get<std::string>();
  std::string page =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  page += "<title>" + html_escaped(title) + " – Troupe report</title>\n<style>\n";
  page += page_style;
  page += "</style>\n</head>\n";
  page += page_body;
  page += "<script type=\"application/json\" id=\"report\">";
  page += embeddable(report);
  page += "</script>\n<script>\n";
  page += page_script;
  page += "</script>\n</body>\n</html>\n";
  return page;
}

}  // namespace troupe
