/**
 * A client of the `cavemem` command for Node.js 18 and later. Needs no package; may be copied.
 *
 * It runs the command named by the environment variable `CAVEMEM_BIN`, else `cavemem` from the `PATH`, once for each
 * call. It checks, ranks and stores nothing by itself: every function returns a promise of the JSON object that the
 * command answers; what the command refuses rejects it with a `CavememError`.
 *
 *     import { recall, remember } from "./index.mjs";
 *
 *     await remember("Webshop: deploys on Tuesday.");
 *     for (const hit of (await recall("webshop deploys", { token_budget: 500 })).hits) console.log(hit.text);
 */

import { spawn } from "node:child_process";

/** Exit status for a text that is larger than one memory may be. */
export const MEMORY_TOO_LARGE_EXIT_CODE = 65;

/** Largest answer that is taken, in bytes; a recall without cap may be larger. */
export const OUTPUT_BYTES_MAX = 32 * 1024 * 1024;

/** How long a call may take. */
export const MILLISECONDS_MAX = 60_000;

/**
 * The command failed. `exitCode` is its exit status, null where it did not run to its end; `stderr` is what it wrote to
 * standard error: usually one line, `{"error": id, "message": text}`.
 */
export class CavememError extends Error {
  constructor(message, { exitCode, stderr, cause }) {
    super(message, { cause });
    this.name = "CavememError";
    this.exitCode = exitCode;
    this.stderr = stderr;
  }
}

/** Store a fact. Resolves to `{id, created_at, basis}`. */
export async function remember(text) {
  return JSON.parse(await run(["remember", "--stdin"], text));
}

/**
 * Find facts. Resolves to `{hits: [{id, text, score, tokens_added, …}], basis}`, best first. `limit` left out, or 0, is
 * the command's default; so is `token_budget` left out, in o200k_base tokens, and 0 lifts that cap.
 */
export async function recall(query, { limit, token_budget } = {}) {
  const numbers = limit === undefined && token_budget === undefined ? [] : [String(limit ?? 0)];
  if (token_budget !== undefined) numbers.push(String(token_budget));
  return JSON.parse(await run(["recall", "--", query, ...numbers]));
}

/** Replace a fact that is no longer true. Resolves to `{id, supersedes, created_at, basis}`. */
export async function supersede(id, text) {
  return JSON.parse(await run(["supersede", "--stdin", "--", id], text));
}

/** Show every version of a fact, oldest first. Resolves to `{history: [{id, text, created_at, …}], basis}`. */
export async function history(id) {
  return JSON.parse(await run(["history", "--", id]));
}

/** Delete one version for good. Resolves to `{forgotten: whether there was one}`. */
export async function forget(id) {
  return JSON.parse(await run(["forget", "--", id]));
}

/** Resolves to the exact original of a shortened hit, a string. */
export async function recover(handle) {
  return run(["recover", "--", handle]);
}

/** Run the command with a text on its standard input; resolve to its answer. All is UTF-8 in every locale. */
function run(words, text = "") {
  const command = process.env.CAVEMEM_BIN || "cavemem";
  return new Promise((resolve, reject) => {
    const fail = (message, exitCode, cause) =>
      reject(new CavememError(message, { exitCode, stderr: Buffer.concat(stderr).toString("utf8").trim(), cause }));
    const stdout = [];
    const stderr = [];
    let size = 0;
    let ended = "";
    const child = spawn(command, words, { stdio: "pipe" });
    const end = (reason) => {
      ended = reason;
      child.kill("SIGKILL");
    };
    const deadline = setTimeout(() => end(`took over ${MILLISECONDS_MAX} ms`), MILLISECONDS_MAX);
    child.on("error", (error) => {
      clearTimeout(deadline);
      fail(`${command} cannot be run: install cavemem-mcp, or set CAVEMEM_BIN to its command`, null, error);
    });
    child.stdin.on("error", () => {}); // a command that refuses a text does not read it to its end
    child.stdin.end(utf8(text));
    child.stdout.on("data", (chunk) => {
      size += chunk.length;
      if (size <= OUTPUT_BYTES_MAX) stdout.push(chunk);
      else if (!ended) end(`answered more than ${OUTPUT_BYTES_MAX} bytes`);
    });
    child.stderr.on("data", (chunk) => stderr.push(chunk));
    child.on("close", (code, signal) => {
      clearTimeout(deadline);
      if (ended) fail(`cavemem was ended: it ${ended}`, null);
      else if (code === 0) resolve(Buffer.concat(stdout).toString("utf8"));
      else fail(`cavemem ended with ${signal ?? `status ${code}`}: ${Buffer.concat(stderr).toString("utf8").trim()}`, code);
    });
  });
}

/** Encode a text; half a surrogate pair, which UTF-8 has no bytes for, becomes bytes that the command refuses. */
function utf8(text) {
  const pieces = String(text).split(/(\p{Surrogate})/u);
  return Buffer.concat(
    pieces.map((piece, index) => {
      if (index % 2 === 0) return Buffer.from(piece, "utf8");
      const unit = piece.charCodeAt(0);
      return Buffer.from([0xe0 | (unit >> 12), 0x80 | ((unit >> 6) & 0x3f), 0x80 | (unit & 0x3f)]);
    }),
  );
}
