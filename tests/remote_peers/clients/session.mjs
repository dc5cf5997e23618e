// The session that each TypeScript client plays: list, call, structured error, unknown tool, recover a large original.
import { createHash } from "node:crypto";
import assert from "node:assert";

export const target = JSON.parse(process.env.PEER_TARGET);

export async function play(client, transport) {
  await client.connect(transport);
  const call = async (tool, args) => {
    const result = await client.callTool({ name: `cavemem_${tool}`, arguments: args });
    assert.deepStrictEqual(JSON.parse(result.content[0].text), result.structuredContent);
    assert.strictEqual(result.isError === true, "error" in result.structuredContent);
    return result.structuredContent;
  };
  const { tools } = await client.listTools();
  const { hits } = await call("recall", { query: "gateway", token_budget: 50 });
  const recovered = await call("recover", { handle: hits[0].recovery_handle });
  let unknown;
  try {
    unknown = (await client.callTool({ name: "cavemem_unknown", arguments: {} })).isError;
  } catch (error) {
    unknown = error.code;
  }
  const { id } = await call("remember", { text: "Peers agree" });
  const { error } = await call("recall", { query: "gateway", limit: -1 });
  await client.close();
  console.log(
    JSON.stringify({
      tools: tools.map((tool) => tool.name),
      id,
      error,
      unknown,
      recovered: createHash("sha256").update(recovered.text).digest("hex"),
    }),
  );
}
