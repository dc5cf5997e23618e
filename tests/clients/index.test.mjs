// The Node.js client against the real command, which CAVEMEM_BIN names. Run by test_node.py, which sets the environment.

import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";

import * as cavemem from "../../cavemem_mcp/clients/index.mjs";

const TEXT = "Zoë drinks 茶 😀\r\nand\ttea\n";

/** Run `call` with some environment variables changed. */
async function withEnvironment(changes, call) {
  const before = Object.fromEntries(Object.keys(changes).map((name) => [name, process.env[name]]));
  Object.assign(process.env, changes);
  try {
    return await call();
  } finally {
    Object.assign(process.env, before);
  }
}

function executable(script) {
  const path = join(mkdtempSync(join(tmpdir(), "cavemem-")), "command");
  writeFileSync(path, `#!/bin/sh\n${script}\n`);
  chmodSync(path, 0o755);
  return path;
}

test("a fact lives from remember to forget", async () => {
  const old = await cavemem.remember(TEXT);
  const later = await cavemem.supersede(old.id, `${TEXT}later`);
  assert.equal(later.supersedes, old.id);
  const found = await cavemem.recall("-- Zoë 茶");
  assert.deepEqual(found.hits.map((hit) => hit.text), [`${TEXT}later`]);
  const { history } = await cavemem.history(old.id);
  assert.deepEqual(history.map((version) => version.text), [TEXT, `${TEXT}later`]);
  assert.deepEqual(await cavemem.forget(later.id), { forgotten: true });
  assert.deepEqual(await cavemem.forget(later.id), { forgotten: false });
});

test("budgets pass through as they are given", async () => {
  const text = "gateway é ".repeat(3000);
  await cavemem.remember(text);
  const [first] = (await cavemem.recall("gateway")).hits;
  assert.ok(first.tokens_added <= 2000);
  assert.ok((await cavemem.recall("gateway", { limit: 1 })).hits[0].tokens_added <= 2000);
  assert.ok((await cavemem.recall("gateway", { token_budget: 50 })).hits[0].tokens_added <= 50);
  assert.equal((await cavemem.recall("gateway", { token_budget: 0 })).hits[0].text, text);
  assert.equal(await cavemem.recover(first.recovery_handle), text);
});

for (const size of [256 * 1024 + 1, 64 * 1024 * 1024]) {
  test(`a text of ${size} bytes ends with 65, read to its end or not`, async () => {
    await assert.rejects(cavemem.remember("a".repeat(size)), (error) => {
      assert.ok(error instanceof cavemem.CavememError);
      assert.equal(error.exitCode, cavemem.MEMORY_TOO_LARGE_EXIT_CODE);
      assert.equal(error.exitCode, 65);
      assert.equal(JSON.parse(error.stderr).error, "cave_memory_too_large");
      return true;
    });
  });
}

const REFUSED = {
  "a blank text": [() => cavemem.remember(" "), "cave_invalid_arguments"],
  "half a surrogate pair": [() => cavemem.remember("half \ud83d"), "cave_invalid_arguments"],
  "a negative budget": [() => cavemem.recall("a", { token_budget: -1 }), "cave_invalid_arguments"],
  "a negative limit": [() => cavemem.recall("a", { limit: -1 }), "cave_invalid_arguments"],
  "an id that looks like an option": [() => cavemem.history("--help"), "cave_history_failed"],
  "an unknown id": [() => cavemem.supersede("mem_0", "text"), "cave_supersede_failed"],
  "an unknown handle": [() => cavemem.recover("ccr_0"), "cave_recover_failed"],
};
for (const [name, [call, id]] of Object.entries(REFUSED)) {
  test(`${name} is an error with the command's words`, async () => {
    await assert.rejects(call(), (error) => {
      assert.equal(error.exitCode, 1);
      assert.equal(JSON.parse(error.stderr).error, id);
      assert.ok(error.message.includes(error.stderr));
      return true;
    });
  });
}

test("an answer of more than 32 MiB is an error", async () => {
  const large = executable("exec head -c 40000000 /dev/zero");
  await withEnvironment({ CAVEMEM_BIN: large }, () =>
    assert.rejects(cavemem.history("mem_0"), { exitCode: null, message: /more than 33554432 bytes/ }),
  );
});

test("a command that a signal ends is an error", async () => {
  await withEnvironment({ CAVEMEM_BIN: executable("kill -9 $$") }, () =>
    assert.rejects(cavemem.history("mem_0"), { exitCode: null, message: /SIGKILL/ }),
  );
});

test("without the command the error says how to get it", async () => {
  await withEnvironment({ CAVEMEM_BIN: "", PATH: "/nonexistent" }, () =>
    assert.rejects(cavemem.forget("mem_0"), { exitCode: null, stderr: "", message: /install cavemem-mcp/ }),
  );
});

test("without a setting the command is found on the path", async () => {
  const path = `${dirname(process.env.CAVEMEM_BIN)}:${process.env.PATH}`;
  const found = await withEnvironment({ CAVEMEM_BIN: "", PATH: path }, () => cavemem.forget("mem_0"));
  assert.deepEqual(found, { forgotten: false });
});

test("it imports nothing but Node's own modules", () => {
  const source = readFileSync(new URL("../../cavemem_mcp/clients/index.mjs", import.meta.url), "utf8");
  const imported = [...source.matchAll(/^import .* from "(.*)";$/gm)].map((match) => match[1]);
  assert.ok(imported.length > 0 && imported.every((name) => name.startsWith("node:")));
});
