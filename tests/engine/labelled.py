"""Inputs as they come, with the type that each one is: written by hand, or printed by real tools (see test_detection)."""
# ruff: noqa: E501, ISC004 - inputs as they come

JSON_RECORDS = [
    '[{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bo"}, {"id": 3, "name": "Cy"}]',
    '{"items": [{"sku": "A1", "qty": 2}, {"sku": "B2", "qty": 1}, {"sku": "C3", "qty": 9}], "next": null}',
    '{"a": {"b": [{"x": 1}, {"x": 2}, {"y": 3}]}}',
    '{"ts": 1, "msg": "up"}\n{"ts": 2, "msg": "ready"}\n{"ts": 3, "msg": "down", "code": 7}\n',
    '  \n[\n  {"k": "é"},\n  {"k": "ü"},\n  {"k": "[… "}\n]\n',
    '{"level":"info","time":"2026-01-02T10:00:00Z","msg":"a"}\n' * 5,
]
JSON_OTHER = [
    "{}",
    "[]",
    "[1, 2, 3]",
    '{"name": "cavemem", "scripts": {"test": "pytest", "lint": "ruff check ."}, "private": true}',
    '{"a": [{"b": 1}, {"b": 2}]}',
    '[[{"x": 1}, {"x": 2}, {"x": 3}], 7]',
    '{"a": 1, "a": 2}',
    '{"level": "ERROR", "stack": "Traceback (most recent call last):\\n  File x"}',
]
DIFFS = [
    "diff --git a/x.py b/x.py\nindex 1..2 100644\n--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n",
    "--- old.txt\t2026-01-01\n+++ new.txt\t2026-01-02\n@@ -1 +1 @@\n-one\n+two\n",
    "diff --git a/old b/new\nsimilarity index 100%\nrename from old\nrename to new\n",
    "commit 1a2b3c\nAuthor: Ada <ada@x.example>\nDate:   Mon Jan 5\n\n    Fix it\n\ndiff --git a/a.c b/a.c\n--- a/a.c\n+++ b/a.c\n"
    "@@ -3 +3 @@ int main(void)\n-  return 1;\n+  return 0;\n",
    'diff --git a/data.json b/data.json\n--- a/data.json\n+++ b/data.json\n@@ -1,3 +1,3 @@\n {\n-  "a": 1\n+  "a": 2\n }\n',
]
PAGES = [
    "<!DOCTYPE html>\n<html><head><title>Hi</title></head><body><p>There</p></body></html>",
    "<html lang='en'><body><h1>x</h1></body></html>",
    "\n\n<!doctype HTML><title>x</title><p>y",
    '<?xml version="1.0"?>\n<html xmlns="http://www.w3.org/1999/xhtml"><body/></html>',
]
CODE = [
    'import os\nimport sys\n\n\ndef main(argv):\n    """Run."""\n    print(os.getcwd())\n    return 0\n\n\nif __name__ == "__main__":\n    sys.exit(main(sys.argv))\n',
    "from dataclasses import dataclass\nfrom typing import Final\n\nX: Final = 3\n\n\n@dataclass\nclass Point:\n    x: int\n    y: int = 0\n",
    "class A:\n    def f(self):\n        return {'a': [1, 2]}\n\n    def g(self):\n        s = '''\n{[(\n'''\n        return s\n",
    "import fs from 'fs';\nimport path from 'path';\n\nexport function read(name) {\n  return fs.readFileSync(path.join('.', name), 'utf8');\n}\n",
    "const a = 1;\nconst b = () => {\n  return a + 1;\n};\nlet c = b();\nmodule.exports = { b, c };\n",
    "interface User {\n  id: number;\n  name?: string;\n}\nexport type Id = number;\nexport const load = async (id: Id): Promise<User> => {\n  return get(`/u/${id}`);\n};\n",
    'package main\n\nimport (\n\t"fmt"\n)\n\ntype T struct {\n\tN int\n}\n\nfunc (t T) String() string {\n\treturn fmt.Sprint(t.N)\n}\n',
    "use std::fmt;\n\npub struct P<'a> {\n    name: &'a str,\n}\n\nimpl fmt::Display for P<'_> {\n    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {\n        write!(f, \"{}\", self.name)\n    }\n}\n",
    "package org.example;\n\nimport java.util.List;\n\npublic class Box {\n    private final List<String> items;\n\n    public int size() {\n        return items.size(); // { not a brace\n    }\n}\n",
    '#include <stdio.h>\n#include "x.h"\n#define N 3\n\nstatic int twice(int a) {\n    return a * 2;\n}\n\nint main(void) {\n    printf("%d\\n", twice(N));\n    return 0;\n}\n',
    "using System;\nusing System.IO;\n\nnamespace Demo {\n    public static class P {\n        public static void Main() {\n            Console.WriteLine(1);\n        }\n    }\n}\n",
]
TABLES = [
    "id,name,amount\n1,Ada,3.50\n2,Bo,4.00\n3,Cy,9.99\n",
    "date,event,owner\n2026-01-02,deploy,ada\n2026-01-03,rollback,bo\n2026-01-04,deploy,cy\n2026-01-05,freeze,ada\n",
    "time,level,msg\n10:00:01,INFO,up\n10:00:02,ERROR,down\n10:00:03,INFO,up\n10:00:04,WARN,slow\n",
    "host\tcpu\tmem\nweb1\t10\t20\nweb2\t11\t22\nweb3\t12\t24\n",
    "name;city;zip\nAda;Oslo;1\nBo;Cork;2\nCy;Turin;3\n",
    'id,note,tag\n1,"two\nlines",a\n2,"with, comma",b\n3,"say ""hi""",c\n4,,d\n',
    "a|b|c\n1|2|3\n4|5|6\n7|8|9\n",
    "id,name\r\n1,x\r\n2,y\r\n3,z\r\n4,w\r\n",
]
TEST_LOGS = [
    "\n".join(f"tests/test_a.py::test_{n} PASSED [ {n}0%]" for n in range(9)) + "\n==== 9 passed in 0.1s ====",
    "\n".join(f"test parser::tests::case_{n} ... ok" for n in range(8)) + "\n\ntest result: ok. 8 passed; 0 failed",
    "\n".join(f"=== RUN   TestA{n}\n--- PASS: TestA{n} (0.00s)" for n in range(6)) + "\nPASS\nok  \texample/x\t0.4s",
    "\n".join(f"test_{n} (tests.test_x.T.test_{n}) ... ok" for n in range(7)) + "\n\nRan 7 tests in 0.01s\n\nOK",
    "PASS src/a.test.js\n"
    + "\n".join(f"  ✓ adds {n} ({n} ms)" for n in range(8))
    + "\n\nTests:       8 passed, 8 total",
    "1..6\n" + "\n".join(f"ok {n} - case {n}" for n in range(1, 7)),
    "\n".join(f"   Compiling crate{n} v0.{n}.0" for n in range(9))
    + "\nerror[E0382]: borrow of moved value: `x`\n --> src/main.rs:4:5",
    "\n".join(f"Requirement already satisfied: pkg{n} in ./lib" for n in range(7)) + "\nSuccessfully installed x-1.0",
    "\n".join(f"[ RUN      ] Suite.Case{n}\n[       OK ] Suite.Case{n} (0 ms)" for n in range(5))
    + "\n[  PASSED  ] 5 tests.",
]
LOGS = [
    "\n".join(f"2026-03-01T10:00:0{n}Z INFO worker started job {n}" for n in range(6)),
    "\n".join(
        f"[2026-03-01 10:00:0{n},123] ERROR in app: boom {n}\n  File x, line {n}\n  ValueError" for n in range(5)
    ),
    "\n".join(f"Mar  1 10:0{n}:00 host sshd[{n}]: Accepted publickey" for n in range(6)),
    "\n".join(f'10.0.0.{n} - - [10/Oct/2025:13:55:3{n} +0000] "GET / HTTP/1.1" 200 {n}' for n in range(6)),
    "\n".join(f"level=info ts={n} msg=ready" for n in range(6)),
    "\n".join(f"WARNING: disk {n} is almost full" for n in range(6)),
    "\n".join(f"10:00:0{n} started step {n}" for n in range(6)),
    "INFO a\n" * 40,
]
TERMINAL = [
    "\x1b[32mok\x1b[0m all good\n\x1b[31mfailed\x1b[0m one\n",
    "Downloading   1%\rDownloading  50%\rDownloading 100%\ndone\n",
    "\x1b]0;title\x07$ ls\n\x1b[01;34msrc\x1b[0m  README\n",
    "\n".join(f"tests/test_a.py::test_{n} \x1b[32mPASSED\x1b[0m" for n in range(9)),
    "\x1b[1mdiff --git a/x b/x\x1b[m\n\x1b[1m--- a/x\x1b[m\n\x1b[1m+++ b/x\x1b[m\n\x1b[36m@@ -1 +1 @@\x1b[m\n\x1b[31m-a\x1b[m\n\x1b[32m+b\x1b[m\n",
]
PROSE = [
    "",
    "x",
    "The user prefers tabs over spaces.",
    "# Notes\n\n- one\n- two\n\nSome *text* with a [link](https://x.example).\n",
    "- 2026-01-02: added search\n- 2026-01-03: fixed a crash\n- 2026-01-04: released 1.0\n- 2026-01-05: yanked 1.0\n",
    "## 1.2.0 (2026-01-02)\n\n- Fix ERROR handling\n- Add INFO page\n\n## 1.1.0 (2025-12-01)\n\n- First\n",
    "Dear Ada,\nthank you, it was lovely,\nwe will come again, soon,\nyours, Bo\n",
    'Traceback (most recent call last):\n  File "x.py", line 3, in <module>\n    main()\n  File "x.py", line 2, in main\n    1 / 0\nZeroDivisionError: division by zero\n',
    "total 16\n-rw-r--r-- 1 ada staff  120 Mar  3 10:22 a.txt\ndrwxr-xr-x 2 ada staff 4096 Mar  3 10:22 src\n",
    "Run it like this:\n\n```python\nimport os\nimport sys\nimport json\ndef f():\n    pass\n```\n\nand wait.\n",
    "The fix was:\n\n```\ndiff --git a/x b/x\n@@ -1 +1 @@\n-a\n+b\n```\n",
    "from Monday on we import tea\nclass starts at ten\nlet us meet at noon\nuse the back door\ntype of room: quiet\n",
    "name: ci\non: [push]\njobs:\n  test:\n    runs-on: ubuntu\n    steps:\n      - run: pytest\n",
    "[server]\nport = 8080\nhost = 0.0.0.0\n\n[log]\nlevel = INFO\n",
    "✓ moved the DNS\n✓ rotated the keys\n✓ told the team\n✓ closed the ticket\n✓ wrote it up\n✓ slept\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n",
    "{not json} but braces\n",
    '"just a string"',
    "[x] done\n[ ] open\n",
    "SELECT id, name\nFROM users\nWHERE name = 'x'\nORDER BY id;\n",
    "表示設定は画面の右上にある。\n言語を変えるには再起動が必要です。\n",
    "3\n14\n15\n92\n65\n35\n",
]
LABELLED = [
    (label, text)
    for label, texts in (
        ("json records", JSON_RECORDS),
        ("json", JSON_OTHER),
        ("diff", DIFFS),
        ("html", PAGES),
        ("code", CODE),
        ("csv", TABLES),
        ("test log", TEST_LOGS),
        ("log", LOGS),
        ("terminal", TERMINAL),
        ("prose", PROSE),
    )
    for text in texts
]
