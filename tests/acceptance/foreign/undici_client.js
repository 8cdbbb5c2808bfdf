// Publishes, leases and acks with undici as it comes: `request` on a pool of connections, and `fetch`.
const { fetch, request } = require("undici");

async function post(url, body, expected) {
  const headers = { "content-type": "application/json" };
  const response = await request(url, { method: "POST", headers, body: JSON.stringify(body) });
  const text = await response.body.text();
  if (response.statusCode !== expected) throw new Error(`${response.statusCode} ${text}`);
  return JSON.parse(text);
}

async function main(url) {
  await Promise.all([0, 1].map((n) => post(`${url}/v1/publish`, { queue: "undici", messages: [{ payload: n }] }, 201)));
  const body = JSON.stringify({ queue: "undici", messages: [{ payload: 2 }] });
  const fetched = await fetch(`${url}/v1/publish`, { method: "POST", headers: { "content-type": "application/json" }, body });
  if (fetched.status !== 201) throw new Error(`fetch: ${fetched.status} ${await fetched.text()}`);
  const streamed = new ReadableStream({
    start(controller) {
      controller.enqueue(Buffer.from('{"queue":"undici",'));
      controller.enqueue(Buffer.from('"messages":[{"payload":3}]}'));
      controller.close();
    },
  });
  const chunked = await fetch(`${url}/v1/publish`, {
    method: "POST", headers: { "content-type": "application/json" }, body: streamed, duplex: "half",
  });
  if (chunked.status !== 201) throw new Error(`chunked: ${chunked.status} ${await chunked.text()}`);
  const { messages } = await post(`${url}/v1/lease`, { queue: "undici", max: 10 }, 200);
  const acked = await post(`${url}/v1/ack`, { receipts: messages.map((each) => each.receipt) }, 200);
  console.log(JSON.stringify(acked));
}

main(process.argv[2]);
