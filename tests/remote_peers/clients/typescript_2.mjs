import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { play, target } from "./session.mjs";

const transport = target.url
  ? new StreamableHTTPClientTransport(new URL(target.url), { requestInit: { headers: target.headers } })
  : new StdioClientTransport({ command: target.command, args: target.args, env: target.env });
const versionNegotiation = { mode: process.env.PEER_ERA };
await play(new Client({ name: "peer", version: "1" }, { versionNegotiation }), transport);
