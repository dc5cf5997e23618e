"""Long texts of daily work: test runs, terminals, diffs, code, pages and notes, with questions about them."""

import random

from tests.bench.engine_words import (
    CITIES,
    FIRST_NAMES,
    HTML_TOPICS,
    NOTES,
    SERVICES,
    TEAMS,
    THINGS,
    VERBS,
    Question,
    hexadecimal,
)


def pytest_log(random_: random.Random) -> tuple[str, list[Question]]:
    lines = ["============ test session starts ============", "platform linux -- Python 3.12.3, pytest-9.0.1", ""]
    failures: list[str] = []
    questions: list[Question] = []
    total = 640
    for number in range(total):
        module, verb, thing = random_.choice(SERVICES), random_.choice(VERBS), random_.choice(THINGS).replace(" ", "_")
        name = f"tests/test_{module.replace('-', '_')}.py::test_{verb}_{thing}_{number}"
        failed = number % 71 == 40
        lines.append(f"{name} {'FAILED' if failed else 'PASSED'} [{100 * number // total:3d}%]")
        if failed:
            got, wanted = random_.randrange(1000), random_.randrange(1000)
            line = random_.randrange(20, 400)
            failures += [
                f"____________ test_{verb}_{thing}_{number} ____________",
                f"    def test_{verb}_{thing}_{number}(client):",
                f"        result = client.{verb}('{thing}')",
                f">       assert result.count == {wanted}",
                f"E       assert {got} == {wanted}",
                "",
                f"tests/test_{module.replace('-', '_')}.py:{line}: AssertionError",
            ]
            questions.append(
                Question(f"what did test_{verb}_{thing}_{number} get instead", (f"assert {got} == {wanted}",))
            )
            where = f"tests/test_{module.replace('-', '_')}.py:{line}: AssertionError"
            questions.append(Question(f"on which line did test_{verb}_{thing}_{number} fail", (where,)))
    lines += ["", "================ FAILURES ================", *failures]
    lines += [
        "======== short test summary info ========",
        f"{len(questions) // 2} failed, {total - 9} passed in 41.20s",
    ]
    questions.append(Question("how many tests passed and failed", (lines[-1],)))
    return "\n".join(lines), questions


def cargo_log(random_: random.Random) -> tuple[str, list[Question]]:
    lines = [f"   Compiling {random_.choice(SERVICES)}-{number} v0.{number}.1" for number in range(150)]
    questions: list[Question] = []
    failures: list[str] = []
    lines.append("running 380 tests")
    for number in range(380):
        name = f"{random_.choice(SERVICES).replace('-', '_')}::tests::{random_.choice(VERBS)}_{number}"
        failed = number % 61 == 30
        lines.append(f"test {name} ... {'FAILED' if failed else 'ok'}")
        if failed:
            left, right, line = random_.randrange(500), random_.randrange(500), random_.randrange(900)
            failures += [f"---- {name} stdout ----", f"thread panicked at src/{name.split('::')[0]}.rs:{line}:9:"]
            failures += ["assertion `left == right` failed", f"  left: {left}", f" right: {right}", ""]
            questions.append(Question(f"where did {name} panic", (f"src/{name.split('::')[0]}.rs:{line}:9",)))
            questions.append(
                Question(f"left and right of the failed assertion in {name}", (f"left: {left}", f"right: {right}"))
            )
    lines += ["", "failures:", "", *failures, "test result: FAILED. 374 passed; 6 failed; 0 ignored; finished in 3.22s"]
    questions.append(Question("test result of the run", (lines[-1],)))
    return "\n".join(lines), questions


def pip_terminal(random_: random.Random) -> tuple[str, list[Question]]:
    lines: list[str] = []
    questions: list[Question] = []
    for number in range(90):
        package = f"{random_.choice(SERVICES)}-kit{number}"
        version = f"{random_.randrange(9)}.{random_.randrange(40)}.{random_.randrange(9)}"
        size = random_.randrange(20, 900)
        lines.append(f"\x1b[1mCollecting {package}\x1b[0m")
        bar = "".join(
            f"\r\x1b[2K     \x1b[32m{'━' * step}\x1b[0m {size * step // 20}/{size} kB" for step in range(0, 21, 2)
        )
        lines.append(f"  Downloading {package}-{version}-py3-none-any.whl{bar}")
        if number % 6 == 0:
            need = f"{random_.randrange(3)}.{random_.randrange(30)}"
            lines.append(f"\x1b[33mWARNING: {package} {version} needs tomlkit<{need}, but you have tomlkit 9.0\x1b[0m")
            questions.append(
                Question(f"which tomlkit does {package} need", (f"{package} {version} needs tomlkit<{need}",))
            )
        if number % 8 == 3:
            code = random_.randrange(1, 99)
            lines.append(f"\x1b[31mERROR: building the wheel of {package} failed with exit code {code}\x1b[0m")
            questions.append(
                Question(f"exit code when building {package}", (f"{package} failed with exit code {code}",))
            )
    return "\r\n".join(lines), questions


def shell_terminal(random_: random.Random) -> tuple[str, list[Question]]:
    lines: list[str] = []
    questions: list[Question] = []
    for number in range(330):
        name = f"{random_.choice(THINGS).replace(' ', '-')}-{number}"
        size, owner = random_.randrange(10**6), random_.choice(FIRST_NAMES).lower()
        if number % 30 == 0:
            lines.append(
                f"\x1b[01;32mops@build7\x1b[00m:\x1b[01;34m~/srv/{random_.choice(SERVICES)}\x1b[00m$ ls -l --color"
            )
        lines.append(
            f"-rw-r--r-- 1 {owner:8} staff {size:9d} Mar 12 10:{number % 60:02d} \x1b[0m\x1b[01;31m{name}\x1b[0m"
        )
        questions.append(Question(f"size of {name} in the listing", (f"{size} Mar 12", name)))
        questions.append(Question(f"who owns the file {name}", (f"{owner:8} staff {size:9d}", name)))
    return "\n".join(lines), questions


def source_diff(random_: random.Random) -> tuple[str, list[Question]]:
    lines: list[str] = []
    questions: list[Question] = []
    for service in SERVICES:
        path = f"src/{service.replace('-', '_')}/{random_.choice(['config', 'client', 'worker'])}.py"
        lines += [f"diff --git a/{path} b/{path}", f"index {hexadecimal(random_, 7)}..{hexadecimal(random_, 7)} 100644"]
        lines += [f"--- a/{path}", f"+++ b/{path}"]
        for hunk in range(3):
            name = f"{random_.choice(VERBS)}_{random_.choice(THINGS).replace(' ', '_')}"
            old, new = random_.randrange(10, 900), random_.randrange(10, 900)
            at = 40 * hunk + random_.randrange(9)
            context = [f"     {random_.choice(THINGS).replace(' ', '_')} = load({at + i})" for i in range(3)]
            after = [f"     log.debug('{random_.choice(VERBS)} %s', value{i})" for i in range(3)]
            lines += [f"@@ -{at},7 +{at},8 @@ def {name}(self):", *context]
            lines += [f"-    {name}_limit = {old}", f"+    {name}_limit = {new}", f"+    self.check({hunk})", *after]
            questions.append(Question(f"new value of {name}_limit in {service}", (f"+    {name}_limit = {new}", path)))
    lock = "frontend/package-lock.json"
    lines += [
        f"diff --git a/{lock} b/{lock}",
        "index 1234567..89abcde 100644",
        f"--- a/{lock}",
        f"+++ b/{lock}",
        "@@ -1,0 +1,300 @@",
    ]
    lines += [f'+    "integrity": "sha512-{hexadecimal(random_, 60)}",' for _ in range(300)]
    return "\n".join(lines), questions


def _python_statements(random_: random.Random) -> list[str]:
    """Return some lines of a method's body."""
    lines: list[str] = []
    for _ in range(random_.randrange(1, 6)):
        thing, verb = random_.choice(THINGS).replace(" ", "_"), random_.choice(VERBS)
        lines += random_.choice(
            [
                [
                    f"        {thing} = self.store.{verb}_{thing}(items)",
                    f"        log.debug('{verb} %d', len({thing}))",
                ],
                [f"        if not self.{thing}:", f"            raise ValueError('no {thing} to {verb}')"],
                [f"        for {thing} in items:", f"            self.{verb}({thing})", "            self.count += 1"],
                [f"        self.{thing} = [{verb}(item) for item in items if item.{thing} is not None]"],
            ]
        )
    return lines


def python_source(random_: random.Random) -> tuple[str, list[Question]]:
    lines = [
        '"""Jobs of the scheduler."""',
        "",
        "import json",
        "import time",
        "from pathlib import Path",
        "",
        "LIMIT = 50",
        "",
    ]
    questions: list[Question] = []
    for service in random_.sample(SERVICES, 10):
        class_name = "".join(part.capitalize() for part in service.split("-"))
        lines += ["", f"class {class_name}:", f'    """Runs {service}."""', "", "    def __init__(self, store):"]
        lines += [
            "        self.store = store",
            "        self.seen = set()",
            "        self.started = time.monotonic()",
            "",
        ]
        for verb in random_.sample(VERBS, 5):
            thing = random_.choice(THINGS).replace(" ", "_")
            timeout, retries = random_.randrange(5, 900), random_.randrange(2, 90)
            lines += [
                f"    def {verb}_{thing}(self, items, *, force=False):",
                f'        """{verb.capitalize()} the {thing}."""',
            ]
            lines += [f"        deadline = time.monotonic() + {timeout}", *_python_statements(random_)]
            lines += [
                "        for item in items:",
                "            if item.id in self.seen and not force:",
                "                continue",
            ]
            lines += [
                f"            answer = self.store.{verb}(item, retries={retries})",
                "            if answer is None:",
            ]
            lines += [
                f"                raise LookupError(f'{thing} {{item.id}} is gone')",
                "            self.seen.add(item.id)",
            ]
            lines += [
                "            if time.monotonic() > deadline:",
                "                break",
                *_python_statements(random_),
            ]
            lines += ["        return len(self.seen)", ""]
            query = f"{class_name} {verb}_{thing} deadline seconds"
            questions.append(Question(query, (f"{verb}_{thing}", f"time.monotonic() + {timeout}")))
            questions.append(
                Question(f"how many retries in {verb}_{thing} of {class_name}", (f"{verb}(item, retries={retries})",))
            )
    return "\n".join(lines), questions


def javascript_source(random_: random.Random) -> tuple[str, list[Question]]:
    lines = ["// HTTP handlers", "import express from 'express';", "import { db } from './db.js';", ""]
    questions: list[Question] = []
    for number in range(50):
        verb, thing = random_.choice(VERBS), "".join(part.capitalize() for part in random_.choice(THINGS).split())
        name = f"{verb}{thing}{number}"
        status, limit = random_.choice([400, 404, 409, 422, 429]), random_.randrange(10, 5000)
        lines += [f"/** {verb} one {thing}. */", f"export async function {name}(request, response) {{"]
        lines += ["  const body = await request.json();", f"  if (body.items.length > {limit}) {{"]
        lines += [f"    return response.status({status}).json({{ error: 'too many' }});", "  }"]
        lines += ["  const rows = await db.query(`select * from items where id = ${body.id}`);"]
        for _ in range(random_.randrange(1, 5)):
            other = random_.choice(THINGS).split()[0]
            lines += [
                f"  const {other} = rows.filter((row) => row.{other} !== null);",
                f"  if ({other}.length === 0) {{",
            ]
            lines += [f"    log.warn('nothing to {random_.choice(VERBS)}', {{ id: body.id }});", "  }"]
        lines += [
            "  for (const row of rows) {",
            "    row.done = true;",
            "  }",
            "  return response.json({ rows });",
            "}",
            "",
        ]
        questions.append(Question(f"which status does {name} return", (name, f"status({status})")))
        questions.append(Question(f"largest number of items in {name}", (f"items.length > {limit}",)))
    return "\n".join(lines), questions


def go_source(random_: random.Random) -> tuple[str, list[Question]]:
    lines = ["package jobs", "", "import (", '\t"context"', '\t"fmt"', '\t"time"', ")", "", "const maxOpen = 12", ""]
    questions: list[Question] = []
    for number in range(50):
        verb, thing = (
            random_.choice(VERBS).capitalize(),
            "".join(part.capitalize() for part in random_.choice(THINGS).split()),
        )
        name, wait = f"{verb}{thing}{number}", random_.randrange(2, 900)
        table = f"{thing.lower()}_{hexadecimal(random_, 4)}"
        lines += [f"// {name} does one step.", f"func (s *Store) {name}(ctx context.Context, id string) error {{"]
        lines += [f"\tctx, cancel := context.WithTimeout(ctx, {wait}*time.Second)", "\tdefer cancel()"]
        lines += [f'\trow := s.db.QueryRow(ctx, "select body from {table} where id = $1", id)', "\tvar body string"]
        lines += ["\tif err := row.Scan(&body); err != nil {", '\t\treturn fmt.Errorf("scan: %w", err)', "\t}"]
        for _ in range(random_.randrange(1, 5)):
            step = "".join(part.capitalize() for part in random_.choice(THINGS).split())
            lines += [f"\tif err := s.{random_.choice(VERBS)}{step}(ctx, body); err != nil {{"]
            lines += [f'\t\treturn fmt.Errorf("{step.lower()} of %s: %w", id, err)', "\t}"]
        lines += ["\treturn nil", "}", ""]
        questions.append(Question(f"timeout of {name}", (name, f"{wait}*time.Second")))
        questions.append(Question(f"which table does {name} read", (name, table)))
    return "\n".join(lines), questions


def html_page(random_: random.Random) -> tuple[str, list[Question]]:
    parts = ["<!doctype html><html lang=en><head><meta charset=utf-8><title>Handbook</title><style>"]
    parts += [
        f".c{number}{{margin:{number}px;padding:{number}em;color:#{hexadecimal(random_, 6)}}}" for number in range(260)
    ]
    parts.append("</style><script>")
    parts += [f"window.q{number}=function(a){{return a.map(x=>x*{number})}};" for number in range(260)]
    parts.append("</script></head><body><nav><ul>")
    parts += [
        f'<li class="nav-item nav-{number}"><a href="/p/{number}">Page {number}</a></li>' for number in range(120)
    ]
    parts.append("</ul></nav><main>")
    questions: list[Question] = []
    for topic, facts in HTML_TOPICS:
        parts.append(
            f'<section class="card card--wide" data-id="{hexadecimal(random_, 12)}"><h2 class="title">{topic}</h2>'
        )
        for query, template in facts:
            value = str(random_.randrange(11, 999))
            sentence = template.replace("#", value)
            parts.append(f'<p class="text text--body">{sentence}</p>')
            questions.append(Question(query, (sentence,)))
        parts.append('<table class="grid"><tr><th>Team</th><th>Room</th></tr>')
        for team in random_.sample(TEAMS, 6):
            room = f"{random_.choice('ABCDEF')}{random_.randrange(100, 999)}"
            parts.append(f'<tr class="row"><td>{topic} {team}</td><td>{room}</td></tr>')
            questions.append(Question(f"room of {topic} {team}", (f"{topic} {team}", room)))
        parts.append("</table><ul>")
        parts += [f"<li>{_filler(random_)}</li>" for _ in range(12)]
        parts.append("</ul></section>")
    parts.append("</main><footer><p>Imprint</p></footer></body></html>")
    return "\n".join(parts), questions


def _filler(random_: random.Random) -> str:
    return (
        f"The {random_.choice(TEAMS)} team {random_.choice(VERBS)}s the {random_.choice(THINGS)} of "
        f"{random_.choice(SERVICES)} in {random_.choice(CITIES)} with {random_.choice(FIRST_NAMES)}."
    )


def notes_markdown(random_: random.Random) -> tuple[str, list[Question]]:
    parts = ["# Notes of the quarter", ""]
    questions: list[Question] = []
    for number, (topic, facts) in enumerate(random_.sample(NOTES, len(NOTES))):
        parts += [f"## {topic}", "", " ".join(_filler(random_) for _ in range(5)), ""]
        for query, template in facts:
            sentence = template.replace("#", str(random_.randrange(11, 999)))
            around = [_filler(random_) for _ in range(4)]
            around.insert(random_.randrange(4), sentence)
            parts += [" ".join(around), ""] if number % 2 else [f"- {line}" for line in around]
            questions.append(Question(query, (sentence,)))
        parts += ["", " ".join(_filler(random_) for _ in range(6)), "", "---", ""]
    return "\n".join(parts), questions


def transcript(random_: random.Random) -> tuple[str, list[Question]]:
    lines = ["Call with the platform group", ""]
    questions: list[Question] = []
    facts = [fact for _, facts in (*NOTES, *HTML_TOPICS) for fact in facts]
    for query, template in random_.sample(facts, len(facts)):
        sentence = template.replace("#", str(random_.randrange(11, 999)))
        for _ in range(6):
            lines += [f"{random_.choice(FIRST_NAMES)}: {_filler(random_)} {_filler(random_)}", ""]
        lines += [f"{random_.choice(FIRST_NAMES)}: {sentence} {_filler(random_)}", ""]
        questions.append(Question(query, (sentence,)))
    return "\n".join(lines), questions


def long_paragraph(random_: random.Random) -> tuple[str, list[Question]]:
    sentences: list[str] = []
    questions: list[Question] = []
    facts = [fact for _, facts in (*HTML_TOPICS, *NOTES) for fact in facts]
    for query, template in random_.sample(facts, len(facts)):
        sentence = template.replace("#", str(random_.randrange(11, 999)))
        sentences += [*(_filler(random_) for _ in range(9)), sentence]
        questions.append(Question(query, (sentence,)))
    return " ".join(sentences), questions
