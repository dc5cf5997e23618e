"""Lines that a server must survive, written for this project: each with a name and what it must be answered with.

What a client may send is one JSON object in UTF-8 a line, a JSON-RPC 2.0 request, notification or response. Lines in
these tables are each wrong in one way, or odd and still right.
"""

import json
from typing import Any, Final

from tests.server.processes import INITIALIZE, Json, call

PING: Final = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
DEEP: Final = 100_000
"""Far beyond what any parser that recurses survives by luck."""
NESTED: Final = 700
"""Beyond what one parser takes, within what another does."""


def _member(json_text: bytes) -> bytes:
    """Return a ping with one more member, of this value, where nothing looks at it."""
    return b'{"jsonrpc":"2.0","id":1,"method":"ping","x":' + json_text + b"}"


def _nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


NOT_JSON: Final[dict[str, bytes]] = {
    "a word": b"hello",
    "a single quote string": b"'ping'",
    "a lone quote": b'"',
    "a lone bracket": b"[",
    "a lone brace": b"{",
    "a closing bracket": b"]",
    "a closing brace": b"}",
    "a lone minus": b"-",
    "a lone comma": b",",
    "a lone colon": b":",
    "a NUL": b"\0",
    "NULs": b"\0" * 1000,
    "a byte order mark alone": b"\xef\xbb\xbf",
    "two byte order marks": b"\xef\xbb\xbf\xef\xbb\xbf" + PING,
    "a byte order mark inside": PING.replace(b":", b":\xef\xbb\xbf", 1),
    "UTF-16, little endian": PING.decode().encode("utf-16-le"),
    "UTF-16, big endian": PING.decode().encode("utf-16-be"),
    "UTF-16 with its mark": PING.decode().encode("utf-16"),
    "UTF-32, little endian": PING.decode().encode("utf-32-le"),
    "UTF-32 with its mark": PING.decode().encode("utf-32"),
    "UTF-7": b'+AHsAIg-jsonrpc":"2.0"}',
    "EBCDIC": PING.decode().encode("cp037"),
    "Latin-1": '{"jsonrpc":"2.0","id":1,"method":"é"}'.encode("latin-1"),
    "a lone continuation byte": _member(b'"\x80"'),
    "a cut UTF-8 sequence": _member(b'"\xe2\x82"'),
    "an overlong slash": _member(b'"\xc0\xaf"'),
    "an overlong NUL": _member(b'"\xc0\x80"'),
    "an overlong letter of three bytes": _member(b'"\xe0\x81\x81"'),
    "a code point beyond the last": _member(b'"\xf4\x90\x80\x80"'),
    "a byte that UTF-8 never has": _member(b'"\xff"'),
    "a sequence of five bytes": _member(b'"\xf8\x88\x80\x80\x80"'),
    "invalid UTF-8 outside of a string": b"\xff" + PING,
    "an executable's first bytes": b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0>\0",
    "a compressed line": b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xabV\xcaL",
    "every byte but a newline": bytes(byte for byte in range(256) if byte != 10),
    "an HTTP request": b"GET /mcp HTTP/1.1",
    "a header of another framing": b"Content-Length: 40",
    "XML": b"<?xml version='1.0'?><ping/>",
    "YAML": b"jsonrpc: 2.0",
    "a trailing comma in an object": PING[:-1] + b",}",
    "a trailing comma in a list": _member(b"[1,]"),
    "a leading comma": b"{," + PING[1:],
    "two commas": PING.replace(b",", b",,", 1),
    "a missing comma": PING.replace(b",", b" ", 1),
    "a missing colon": PING.replace(b":", b" ", 1),
    "two colons": PING.replace(b":", b"::", 1),
    "a missing value": _member(b""),
    "a missing brace": PING[:-1],
    "an extra brace": PING + b"}",
    "a wrong closing": PING[:-1] + b"]",
    "two objects": PING + PING,
    "an object and a word": PING + b" x",
    "an object and a NUL": PING + b"\0",
    "a line comment": PING + b" // ping",
    "a block comment": b"/* ping */" + PING,
    "a hash comment": PING + b" # ping",
    "a key without quotes": b'{jsonrpc:"2.0","id":1,"method":"ping"}',
    "a key in single quotes": b'{\'jsonrpc\':"2.0","id":1,"method":"ping"}',
    "a number as a key": b'{1:"2.0"}',
    "null as a key": b'{null:"2.0"}',
    "a list as a key": b'{[]:"2.0"}',
    "an unterminated string": b'{"jsonrpc":"2.0","id":1,"method":"pin',
    "an unterminated escape": b'{"jsonrpc":"2.0","id":1,"method":"ping\\',
    "an unknown escape": _member(rb'"\x41"'),
    "an escaped letter": _member(rb'"\a"'),
    "an escaped NUL byte": _member(b'"\\\0"'),
    "an octal escape": _member(rb'"\012"'),
    "a short unicode escape": _member(rb'"\u12"'),
    "a unicode escape that is no hex": _member(rb'"\u12G4"'),
    "a signed unicode escape": _member(rb'"\u+123"'),
    "an unfinished unicode escape": _member(rb'"\u'),
    "a capital unicode escape": _member(rb'"\U0001F600"'),
    "a tab in a string": _member(b'"\t"'),
    "a carriage return in a string": _member(b'"\r"'),
    "a NUL in a string": _member(b'"\0"'),
    "a control character in a key": b'{"json\x1frpc":"2.0"}',
    "a form feed between": b"{\x0c" + PING[1:],
    "a no-break space before": b"\xc2\xa0" + PING,
    "an ideographic space between": b"{\xe3\x80\x80" + PING[1:],
    "a zero before digits": _member(b"012"),
    "a minus and a zero before digits": _member(b"-012"),
    "a plus sign": _member(b"+1"),
    "two minus signs": _member(b"--1"),
    "a minus alone": _member(b"-"),
    "a point without digits after": _member(b"1."),
    "a point without digits before": _member(b".5"),
    "two points": _member(b"1.2.3"),
    "an exponent without digits": _member(b"1e"),
    "an exponent with a sign alone": _member(b"1e+"),
    "an exponent with a point": _member(b"1e1.5"),
    "hex digits": _member(b"0x10"),
    "octal digits": _member(b"0o10"),
    "separators in a number": _member(b"1_000"),
    "full-width digits": _member("１２".encode()),
    "Arabic digits": _member("٣".encode()),
    "an integer of 5000 digits": _member(b"9" * 5000),
    "an integer of a million digits": _member(b"9" * 1_000_000),
    "a capital true": _member(b"True"),
    "a capital null": _member(b"NULL"),
    "a short true": _member(b"tru"),
    "a long true": _member(b"truee"),
    "undefined": _member(b"undefined"),
    "a short NaN": _member(b"Na"),
    "a signed NaN": _member(b"-NaN"),
    "inf": _member(b"inf"),
    "a template string": _member(b"`x`"),
    "lists, deep, open": b"[" * DEEP,
    "lists, deep, closed": _member(_nested(DEEP)),
    "objects, deep, open": b'{"a":' * DEEP,
    "objects, deep, closed": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "lists and objects, deep": b'[{"a":' * DEEP,
    "deep and then wrong": b"[" * DEEP + b"}",
    "deep inside of a good call": json.dumps(call("recall", {"query": 0}))
    .encode()
    .replace(b"0}", _nested(DEEP) + b"}"),
    "many quotes": b'"' * 100_001,
    "many escapes": b'"' + b"\\" * 100_001,
    "many opening quotes and brackets": b'["' * DEEP,
}
"""What is no JSON text, or one that cannot be read: a parse error."""


def _message(**members: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


NOT_MESSAGES: Final[dict[str, tuple[bytes, object]]] = {
    "null": (b"null", None),
    "true": (b"true", None),
    "a number": (b"5", None),
    "a number with a huge exponent": (b"1e999999", None),
    "NaN": (b"NaN", None),
    "minus infinity": (b"-Infinity", None),
    "a string": (b'"ping"', None),
    "an empty list": (b"[]", None),
    "a batch": (b"[" + PING + b"," + PING + b"]", None),
    "a batch of one": (b"[" + PING + b"]", None),
    "a batch of notifications": (b"[" + _message(method="notifications/initialized") + b"]", None),
    "a batch of 10 000": (b"[" + b",".join([PING] * 10_000) + b"]", None),
    "a batch of nonsense": (b"[1,2,3]", None),
    "lists, nested": (_nested(NESTED), None),
    "an empty object": (b"{}", None),
    "no version": (b'{"id":1,"method":"ping"}', 1),
    "version 1.0": (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 1),
    "version 2": (b'{"jsonrpc":"2","id":1,"method":"ping"}', 1),
    "version 2.0.0": (b'{"jsonrpc":"2.0.0","id":1,"method":"ping"}', 1),
    "a version with a space": (b'{"jsonrpc":"2.0 ","id":1,"method":"ping"}', 1),
    "a version as a number": (b'{"jsonrpc":2.0,"id":1,"method":"ping"}', 1),
    "a version as null": (b'{"jsonrpc":null,"id":1,"method":"ping"}', 1),
    "a version in a list": (b'{"jsonrpc":["2.0"],"id":1,"method":"ping"}', 1),
    "a version under another name": (b'{"JSONRPC":"2.0","id":1,"method":"ping"}', 1),
    "id null": (_message(id=None, method="ping"), None),
    "id null, its name escaped": (b'{"jsonrpc":"2.0","\\u0069d":null,"method":"ping"}', None),
    "id true": (_message(id=True, method="ping"), None),
    "id false": (_message(id=False, method="ping"), None),
    "id 1.5": (_message(id=1.5, method="ping"), None),
    "id 1.0": (_message(id=1.0, method="ping"), None),
    "id 1e400": (b'{"jsonrpc":"2.0","id":1e400,"method":"ping"}', None),
    "id NaN": (_message(id=float("nan"), method="ping"), None),
    "id a list": (_message(id=[1], method="ping"), None),
    "id an object": (_message(id={"id": 1}, method="ping"), None),
    "no method": (_message(id=1), 1),
    "no method and params": (_message(id=1, params={}), 1),
    "method null": (_message(id=1, method=None), 1),
    "method a number": (_message(id=1, method=5), 1),
    "method true": (_message(id=1, method=True), 1),
    "method a list": (_message(id=1, method=["ping"]), 1),
    "method an object": (_message(id=1, method={}), 1),
    "params a list": (_message(id=1, method="ping", params=[]), 1),
    "params a list of values": (_message(id=1, method="tools/call", params=["cavemem_recall", 1]), 1),
    "params a string": (_message(id=1, method="ping", params="x"), 1),
    "params a number": (_message(id=1, method="ping", params=0), 1),
    "params false": (_message(id=1, method="ping", params=False), 1),
    "a notification with params a list": (_message(method="notifications/initialized", params=[]), None),
    "a notification without a method": (_message(params={}), None),
    "a result that is a string": (_message(id=1, result="x"), 1),
    "a result that is null": (_message(id=1, result=None), 1),
    "a result with id null": (_message(id=None, result={}), None),
    "a result without an id": (_message(result={}), None),
    "an error that is a string": (_message(id=1, error="x"), 1),
    "an error without a code": (_message(id=1, error={"message": "x"}), 1),
    "an error with a code that is a string": (_message(id=1, error={"code": "x", "message": "x"}), 1),
    "a request that is an error too": (_message(id=1, method="ping", error={"code": 1, "message": "x"}), 1),
    "the last of two versions counts": (b'{"jsonrpc":"2.0","jsonrpc":"1.0","id":1,"method":"ping"}', 1),
    "the last of two methods counts": (b'{"jsonrpc":"2.0","id":1,"method":"ping","method":5}', 1),
}
"""What is JSON and no message, with the id under which the refusal comes: an invalid request."""

UNANSWERED: Final[dict[str, bytes]] = {
    "an empty line": b"",
    "blanks": b"  \t ",
    "a carriage return": b"\r",
    "a notification that nobody knows": _message(method="no/such"),
    "a notification without a name": _message(method=""),
    "a notification nested": b'{"jsonrpc":"2.0","method":"no/such","params":{"a":' + _nested(NESTED) + b"}}",
    "a request without an id": _message(method="tools/list"),
    "a write without an id": json.dumps({**call("remember", {"text": "unasked"}), "id": 0})
    .encode()
    .replace(b'"id": 0, ', b""),
    "a second end of the handshake": _message(method="notifications/initialized"),
    "a cancellation of nothing": _message(method="notifications/cancelled", params={"requestId": 999}),
    "a cancellation of nothing, by name": _message(method="notifications/cancelled", params={"requestId": "x"}),
    "a cancellation without an id": _message(method="notifications/cancelled", params={}),
    "a cancellation without params": _message(method="notifications/cancelled"),
    "a cancellation of an object": _message(method="notifications/cancelled", params={"requestId": {}}),
    "a cancellation of null": _message(method="notifications/cancelled", params={"requestId": None}),
    "a cancellation of 1.5": _message(method="notifications/cancelled", params={"requestId": 1.5}),
    "progress of nothing": _message(method="notifications/progress", params={"progressToken": 1, "progress": 1}),
    "progress that is a string": _message(
        method="notifications/progress", params={"progressToken": 1, "progress": "x"}
    ),
    "roots that changed": _message(method="notifications/roots/list_changed"),
    "a result of nothing": _message(id=1, result={}),
    "a result of nothing, nested": b'{"jsonrpc":"2.0","id":1,"result":{"a":' + _nested(NESTED) + b"}}",
    "an error of nothing": _message(id="x", error={"code": -32603, "message": "x"}),
    "an error without an id": _message(id=None, error={"code": -32603, "message": "x", "data": [1]}),
}
"""What needs no answer and must get none."""


def _request(method: str, params: object = None) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": method, **({} if params is None else {"params": params})}


def _meta(meta: object) -> Json:
    return _request("tools/list", {"_meta": meta})


def _handshake(**members: object) -> Json:
    return _request("initialize", INITIALIZE["params"] | members)


def _resource(uri: object) -> Json:
    return _request("resources/read", {"uri": uri})


def _tool(params: object) -> Json:
    return _request("tools/call", params)


def _reference(argument: object, uri: object = "cavemem://memory/{id}") -> Json:
    return _request("completion/complete", {"ref": {"type": "ref/resource", "uri": uri}, "argument": argument})


METHOD, PARAMS, REQUEST = -32601, -32602, -32600
VERSION: Final = "io.modelcontextprotocol/protocolVersion"
PROTOCOL_ERRORS: Final[dict[str, tuple[Json, int]]] = {
    "a method that does not exist": (_request("no/such"), METHOD),
    "a method without a name": (_request(""), METHOD),
    "a method in capitals": (_request("PING"), METHOD),
    "a method with a space": (_request("ping "), METHOD),
    "a method with a NUL": (_request("ping\0"), METHOD),
    "a method with a dot": (_request("rpc.discover"), METHOD),
    "a method with half of a surrogate pair": (_request("\ud800"), METHOD),
    "a method of a megabyte": (_request("x" * 1_000_000), METHOD),
    "a tool's name as a method": (_request("cavemem_recall", {"query": "x"}), METHOD),
    "a notification's method with an id": (_request("notifications/initialized"), METHOD),
    "a cancellation with an id": (_request("notifications/cancelled", {"requestId": 1}), METHOD),
    "a method that clients serve": (_request("sampling/createMessage", {}), METHOD),
    "a method that is not offered": (_request("resources/subscribe", {"uri": "cavemem://status"}), METHOD),
    "a log level": (_request("logging/setLevel", {"level": "debug"}), METHOD),
    "tasks": (_request("tasks/list"), METHOD),
    "unknown and nested": (_request("no/such", {"a": json.loads(_nested(150))}), METHOD),
    "an unknown method with NaN": (_request("no/such", {"a": float("nan")}), METHOD),
    "a handshake without params": (_request("initialize"), PARAMS),
    "a handshake with nothing": (_request("initialize", {}), PARAMS),
    "a handshake with a number for a version": (_handshake(protocolVersion=20251125), PARAMS),
    "a handshake with a name for a client": (_handshake(clientInfo="x"), PARAMS),
    "a handshake with a list of capabilities": (_handshake(capabilities=[]), PARAMS),
    "meta that is a string": (_meta("x"), PARAMS),
    "meta that is a list": (_meta([]), PARAMS),
    "a progress token that is an object": (_meta({"progressToken": {}}), PARAMS),
    "a progress token that is a fraction": (_meta({"progressToken": 1.5}), PARAMS),
    "a version of the other era": (_meta({VERSION: "2026-07-28"}), REQUEST),
    "a version that never was": (_meta({VERSION: "1999-01-01"}), REQUEST),
    "a version that is a number": (_meta({VERSION: 7}), REQUEST),
    "a cursor that is a number": (_request("tools/list", {"cursor": 5}), PARAMS),
    "a tool call without params": (_tool(None), PARAMS),
    "a tool call without a name": (_tool({}), PARAMS),
    "a tool that does not exist": (_tool({"name": "cavemem_delete_all", "arguments": {}}), PARAMS),
    "a tool in capitals": (_tool({"name": "CAVEMEM_RECALL", "arguments": {"query": "x"}}), PARAMS),
    "a tool without its prefix": (_tool({"name": "recall", "arguments": {"query": "x"}}), PARAMS),
    "a tool's name with half of a surrogate pair": (_tool({"name": "cavemem_\udfff", "arguments": {}}), PARAMS),
    "a tool's name that is null": (_tool({"name": None, "arguments": {}}), PARAMS),
    "a tool's name that is a number": (_tool({"name": 5, "arguments": {}}), PARAMS),
    "a tool's name that is a list": (_tool({"name": ["cavemem_recall"], "arguments": {}}), PARAMS),
    "arguments that are a list": (_tool({"name": "cavemem_recall", "arguments": ["x"]}), PARAMS),
    "arguments that are a string": (_tool({"name": "cavemem_recall", "arguments": '{"query":"x"}'}), PARAMS),
    "arguments that are a number": (_tool({"name": "cavemem_recall", "arguments": 5}), PARAMS),
    "arguments that are true": (_tool({"name": "cavemem_recall", "arguments": True}), PARAMS),
    "a resource without an address": (_request("resources/read", {}), PARAMS),
    "a resource's address that is a number": (_resource(5), PARAMS),
    "a resource's address that is empty": (_resource(""), PARAMS),
    "a resource that does not exist": (_resource("cavemem://secrets"), PARAMS),
    "a memory that does not exist": (_resource("cavemem://memory/mem_0"), PARAMS),
    "a memory's id with a NUL": (_resource("cavemem://memory/mem_\0"), PARAMS),
    "a memory's id with half of a surrogate pair": (_resource("cavemem://memory/\ud800"), PARAMS),
    "a memory's id of a megabyte": (_resource("cavemem://memory/" + "m" * 1_000_000), PARAMS),
    "a handle with half of a surrogate pair": (_resource("cavemem://recovery/\udc00"), PARAMS),
    "a path out of the resources": (_resource("cavemem://memory/../../etc/passwd"), PARAMS),
    "a file": (_resource("file:///etc/passwd"), PARAMS),
    "a prompt without a name": (_request("prompts/get", {}), PARAMS),
    "a prompt that does not exist": (_request("prompts/get", {"name": "\ud800"}), PARAMS),
    "a prompt's topic that is a number": (
        _request("prompts/get", {"name": "what_do_you_know", "arguments": {"topic": 5}}),
        PARAMS,
    ),
    "a prompt's topic with half of a surrogate pair": (
        _request("prompts/get", {"name": "what_do_you_know", "arguments": {"topic": "\ud800"}}),
        PARAMS,
    ),
    "a completion of nothing": (_request("completion/complete", {}), PARAMS),
    "a completion of a number": (_reference(5), PARAMS),
    "a completion with a value that is a list": (_reference({"name": "id", "value": []}), PARAMS),
    "a completion for an address that is null": (_reference({"name": "id", "value": ""}, None), PARAMS),
    "a completion with half of a surrogate pair": (_reference({"name": "id", "value": "mem_\ud800"}), PARAMS),
}
"""Requests that get an error of the protocol, with its code."""

WRONG_VALUES: Final[dict[str, Any]] = {
    "null": None,
    "true": True,
    "a number": 5,
    "a fraction": 1.5,
    "NaN": float("nan"),
    "a list": ["x"],
    "an object": {"text": "x"},
    "half of a surrogate pair": "cut \ud83d",
    "the other half": "\udc00 cut",
    "the halves in the wrong order": "\udc00\ud83d",
}
"""What no argument that is a text may be."""

WRONG_INTEGERS: Final[dict[str, Any]] = {
    "true": True,
    "a fraction": 1.5,
    "minus one": -1,
    "minus one as a fraction": -1.0,
    "minus one as a string": "-1",
    "a huge number": 10**400,
    "a huge number as a string": "9" * 5000,
    "infinity": float("inf"),
    "minus infinity": float("-inf"),
    "NaN": float("nan"),
    "an empty string": "",
    "a word": "five",
    "a number with a blank": " 5",
    "full-width digits": "５",
    "a superscript": "²",
    "hex digits": "0x10",
    "a list": [5],
    "an object": {"limit": 5},
    "a surrogate": "\ud800",
}
"""What no argument that is an integer may be."""

TEXTS: Final[list[tuple[str, str, Json]]] = [
    *[("remember", "text", {}), ("recall", "query", {}), ("supersede", "id", {"text": "x"})],
    *[("supersede", "text", {"id": "mem_0"}), ("history", "id", {}), ("forget", "id", {}), ("recover", "handle", {})],
]
INTEGERS: Final[list[tuple[str, str, Json]]] = [
    *[("recall", "limit", {"query": "x"}), ("recall", "token_budget", {"query": "x"})],
    *[("recover", "offset", {"handle": "ccr_" + "0" * 32}), ("recover", "token_budget", {"handle": "ccr_" + "0" * 32})],
]

TOOL_ERRORS: Final[dict[str, tuple[Json, str]]] = {
    **{
        f"{tool}: {name} is {kind}": (call(tool, {**others, name: value}), "cave_invalid_arguments")
        for tool, name, others in TEXTS
        for kind, value in WRONG_VALUES.items()
    },
    **{
        f"{tool}: {name} is {kind}": (call(tool, {**others, name: value}), "cave_invalid_arguments")
        for tool, name, others in INTEGERS
        for kind, value in WRONG_INTEGERS.items()
    },
    **{
        f"{tool}: no arguments": (call(tool, None), "cave_invalid_arguments")
        for tool in ("remember", "recall", "supersede", "history", "forget", "recover")
    },
    "an argument too many": (call("recall", {"query": "x", "store": "other"}), "cave_invalid_arguments"),
    "an argument without a name": (call("recall", {"query": "x", "": 1}), "cave_invalid_arguments"),
    "an argument's name in another case": (call("recall", {"Query": "x"}), "cave_invalid_arguments"),
    "an argument's name with a surrogate": (call("recall", {"query": "x", "\ud800": 1}), "cave_invalid_arguments"),
    "an argument of the server's own": (call("recall", {"query": "x", "ctx": {}}), "cave_invalid_arguments"),
    "10 000 arguments": (call("recall", {f"a{n}": n for n in range(10_000)}), "cave_invalid_arguments"),
    "a nested argument": (call("recall", {"query": json.loads(_nested(NESTED))}), "cave_invalid_arguments"),
    "a text of blanks": (call("remember", {"text": " \t\n\u2003"}), "cave_invalid_arguments"),
    "a text that is empty": (call("remember", {"text": ""}), "cave_invalid_arguments"),
    "a text one byte too large": (call("remember", {"text": "x" * (256 * 1024 + 1)}), "cave_memory_too_large"),
    "a text far too large": (call("remember", {"text": "\U0001f600" * 500_000}), "cave_memory_too_large"),
    "an id that is SQL": (call("history", {"id": "mem_0' OR 1=1 --"}), "cave_history_failed"),
    "an id with a NUL": (call("history", {"id": "mem_0\0"}), "cave_history_failed"),
    "an id that is a path": (call("history", {"id": "../../etc/passwd"}), "cave_history_failed"),
    "an id of a megabyte": (call("history", {"id": "m" * 1_000_000}), "cave_history_failed"),
    "a handle that is a path": (call("recover", {"handle": "../ccr.db"}), "cave_recover_failed"),
}
"""Calls that get an error of the tool, with its id."""

ANSWERED: Final[dict[str, tuple[bytes, object]]] = {
    "a ping": (PING, 1),
    "a carriage return at the end": (PING + b"\r", 1),
    "carriage returns between": (PING.replace(b",", b",\r\r"), 1),
    "blanks around": (b" \t" + PING + b"\t ", 1),
    "a byte order mark before the line": (b"\xef\xbb\xbf" + PING, 1),
    "every letter escaped": (PING.replace(b"ping", rb"\u0070\u0069\u006e\u0067"), 1),
    "names escaped": (PING.replace(b'"id"', rb'"\u0069\u0064"').replace(b'"method"', rb'"m\u0065thod"'), 1),
    "the last of two ids counts": (PING.replace(b'"id":1', b'"id":7,"id":1'), 1),
    "the last of 10 000 ids counts": (PING.replace(b'"id":1', b'"id":7,' * 10_000 + b'"id":1'), 1),
    "the last of two methods counts": (PING.replace(b'"method"', b'"method":"no/such","method"'), 1),
    "params that are null": (_message(id=1, method="ping", params=None), 1),
    "params that are unknown": (_message(id=1, method="ping", params={"x": ["y", None]}), 1),
    "members that are unknown": (_member(b'{"x":[1,2,{}]}'), 1),
    "10 000 members that are unknown": (PING[:-1] + b"".join(b',"x%d":%d' % (n, n) for n in range(10_000)) + b"}", 1),
    "a request that is a result too": (_message(id=1, method="ping", result={}), 1),
    "a member nested": (_member(_nested(NESTED)), 1),
    "a member that is NaN": (_member(b"NaN"), 1),
    "a member that is half of a surrogate pair": (_member(rb'"\udead"'), 1),
    "a member that is a pair of surrogates": (_member(rb'"\ud83d\ude00"'), 1),
    "a member that is an encoded surrogate": (_member(b'"\xed\xa0\x80"'), 1),
    "a member that is no character": (_member(b'"\xef\xbf\xbf"'), 1),
    "a member with an exponent beyond floats": (_member(b"1e999999"), 1),
    "a member with an exponent below floats": (_member(b"1e-999999"), 1),
    "a member with 100 000 digits after the point": (_member(b"0." + b"1" * 100_000), 1),
    "a member that is minus zero": (_member(b"-0"), 1),
    "a member of a megabyte": (_member(b'"' + b"x" * 1_000_000 + b'"'), 1),
    "a member with a name of a megabyte": (PING[:-1] + b',"' + b"x" * 1_000_000 + b'":1}', 1),
    "id zero": (_message(id=0, method="ping"), 0),
    "id minus one": (_message(id=-1, method="ping"), -1),
    "id minus zero": (b'{"jsonrpc":"2.0","id":-0,"method":"ping"}', 0),
    "id beyond 64 bits": (_message(id=2**64, method="ping"), 2**64),
    "id of 400 digits": (_message(id=10**400, method="ping"), 10**400),
    "id an empty string": (_message(id="", method="ping"), ""),
    "id a string of digits": (_message(id="1", method="ping"), "1"),
    "id with a NUL": (_message(id="\0", method="ping"), "\0"),
    "id with line separators": (_message(id="\n\r\u2028\x85", method="ping"), "\n\r\u2028\x85"),
    "id half of a surrogate pair": (_message(id="\ud800", method="ping"), "\ud800"),
    "id of 100 000 letters": (_message(id="x" * 100_000, method="ping"), "x" * 100_000),
    "a list with an unknown cursor": (json.dumps(_request("tools/list", {"cursor": "x"})).encode(), 1),
    "meta nested": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"a":' + _nested(NESTED) + b"}}}", 1),
    "a second handshake": (json.dumps(INITIALIZE).encode(), 0),
    "a handshake for a version that never was": (
        json.dumps(_handshake(protocolVersion="1999-01-01")).encode(),
        1,
    ),
    "a query that is SQL": (json.dumps(call("recall", {"query": "'; DROP TABLE memories; --"})).encode(), 1),
    "a query with a NUL": (json.dumps(call("recall", {"query": "a\0b"})).encode(), 1),
    "a query of 50 000 words": (json.dumps(call("recall", {"query": "w1 w2 w3 w4 w5 " * 10_000})).encode(), 1),
    "a limit that is far too high": (json.dumps(call("recall", {"query": "x", "limit": 2**53 - 1})).encode(), 1),
    "integers as strings and fractions": (
        json.dumps(call("recall", {"query": "x", "limit": "5", "token_budget": 5.0})).encode(),
        1,
    ),
    "a forgotten id that never was": (json.dumps(call("forget", {"id": "mem_\0"})).encode(), 1),
    "a completion with a pattern": (json.dumps(_reference({"name": "id", "value": "%_*?["})).encode(), 1),
}
"""Odd lines that are right all the same, with the id of their answer."""

TOO_LONG: Final[dict[str, bytes]] = {
    "20 MB of letters": b"x" * 20_000_000,
    "20 MB of blanks and a ping": b" " * 20_000_000 + PING,
    "20 MB of a good call": json.dumps(call("remember", {"text": "x" * 20_000_000})).encode(),
    "20 MB of brackets": b"[" * 20_000_000,
    "20 MB of NULs": b"\0" * 20_000_000,
}
"""Lines that are longer than what is kept of one: an invalid request. Few, because each takes its time."""
