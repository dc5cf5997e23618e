// Uses MCP Inspector's page as a person would. Prints what the page shows after each call, as a JSON object.
// Arguments: the page's address, Chromium's path, where to put the screenshot.
import { chromium } from "playwright-core";

const [address, executablePath, screenshot] = process.argv.slice(2);
const fact = "Webshop: deploys on Tuesday, because Friday broke billing.";
const BYTES_MAX = 256 * 1024;

const browser = await chromium.launch({
  executablePath,
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
});
const page = await browser.newPage({ viewport: { width: 1400, height: 900 } });
page.setDefaultTimeout(60_000);

// Calls a tool by its form; returns the text of the page once `expected` is on it.
async function call(title, tool, values, expected) {
  await page.getByRole("button", { name: `${title} ${tool}` }).click();
  for (const [name, value] of Object.entries(values)) {
    await page.getByLabel(new RegExp(`^${name}( \\*)?$`)).fill(value);
  }
  await page.getByRole("button", { name: "Execute Tool" }).click();
  await page.getByText(expected).first().waitFor();
  return page.locator("main").innerText();
}

try {
  await page.goto(address);
  await page.getByRole("switch", { name: /cavemem-stdio/ }).click({ force: true });
  await page.getByText("Tools", { exact: true }).click();
  const remember = (text, expected) => call("Remember a fact", "cavemem_remember", { text }, expected);
  const recall = (expected) => call("Recall memories", "cavemem_recall", { query: "webshop deploys", token_budget: "0" }, expected);
  const shown = {
    refused: await remember("x".repeat(BYTES_MAX + 1), /cave_memory_too_large/),
    recalledBefore: await recall(/"hits"/),
    remembered: await remember(fact, /mem_[0-9a-f]{16}/),
    recalled: await recall(/tokens_added/),
  };
  await page.screenshot({ path: screenshot });
  console.log(JSON.stringify(shown));
} catch (error) {
  await page.screenshot({ path: screenshot });
  throw error;
} finally {
  await browser.close();
}
