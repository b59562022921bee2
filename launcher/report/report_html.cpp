#include "launcher/report/report_html.hpp"

#include <string_view>

namespace troupe {
namespace {

/// Escapes `text` for use as HTML text.
std::string html_escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const std::string_view escaped = c == '<'   ? "&lt;"
                                     : c == '>' ? "&gt;"
                                     : c == '&' ? "&amp;"
                                                : "";
    if (escaped.empty()) {
      result += c;
    } else {
      result += escaped;
    }
  }
  return result;
}

/// Returns JSON that may be put into a script element: nothing in it ends the element or begins a
/// comment, and the two Unicode line ends that JavaScript knows are escaped.
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

std::string html_page(const std::string& title, const PagePart& part,
                      const nlohmann::ordered_json& data) {
  std::string page =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  page += "<title>" + html_escaped(title) + "</title>\n<style>\n";
  page += page_style;
  page += "</style>\n</head>\n";
  page += part.body;
  page += "<script type=\"application/json\" id=\"report\">";
  page += embeddable(data);
  page += "</script>\n<script>\n";
  page += page_plots;
  page += part.script;
  page += "</script>\n</body>\n</html>\n";
  return page;
}

std::string report_html(const nlohmann::ordered_json& report) {
  // Passed through the dump, which replaces invalid UTF-8.
  const auto name =
      nlohmann::ordered_json::parse(embeddable(report.at("job").at("name"))).get<std::string>();
  return html_page(name + " – Troupe report", report_page, report);
}

}  // namespace troupe
