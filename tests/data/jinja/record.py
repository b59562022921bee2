#!/usr/bin/env python3
"""Records what Jinja 3.1.6 makes of snippets.txt and templates/*.jinja into snippets.jsonl and
templates.jsonl, with the settings of transformers' apply_chat_template. Needs `pip install
jinja2==3.1.6`. A line of snippets.txt is a snippet (⏎ is a line end), which sees variables.json; a
template sees each conversation of conversations.json."""
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True, "tools": None, "documents": None}
NOW = datetime.datetime(2025, 7, 26, 9, 5, 3)  # 1753520703 seconds since 1970


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
)
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = NOW.strftime


def outcome(template, variables):
    try:
        return {"text": environment.from_string(template).render(**variables)}
    except Exception as error:
        return {"refused": type(error).__name__}


def write(path, rows):
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    variables = json.loads((HERE / "variables.json").read_text())
    lines = (HERE / "snippets.txt").read_text(encoding="utf-8").split("\n")
    snippets = [line.replace("⏎", "\n") for line in lines if line]
    write(HERE / "snippets.jsonl", ({"template": s, **outcome(s, variables)} for s in snippets))

    conversations = json.loads((HERE / "conversations.json").read_text())
    rows = []
    for path in sorted((HERE / "templates").glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        for name, values in conversations.items():
            values = {**TOKENS, **values}
            rows.append({"template": path.name, "conversation": name, **outcome(source, values)})
    write(HERE / "templates.jsonl", rows)


if __name__ == "__main__":
    main()
