// Publishes, leases and acks with grpc-js and proto-loader as they come; then consumes on a stream and cancels it.
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [target, sources] = process.argv.slice(2);
const definition = loader.loadSync("penstock/v1/broker.proto", { includeDirs: [sources] });
const { Broker } = grpc.loadPackageDefinition(definition).penstock.v1;
const broker = new Broker(target, grpc.credentials.createInsecure());
const call = (name, request) =>
  new Promise((resolve, reject) => broker[name](request, (error, reply) => (error ? reject(error) : resolve(reply))));

/** Resolves with the messages of the first reply, when the stream has ended. */
function consumeAndCancel(queue) {
  return new Promise((resolve, reject) => {
    const stream = broker.LeaseStream();
    let messages = null;
    stream.on("data", (reply) => {
      messages = reply.messages;
      stream.cancel();
    });
    stream.on("error", (error) => (error.code === grpc.status.CANCELLED ? resolve(messages) : reject(error)));
    stream.write({ open: { queue }, credits: 10 });
  });
}

async function main() {
  const messages = [0, 1, 2].map((number) => ({ json: String(number) }));
  await call("Publish", { queue: "grpc", messages });
  const attempts = [];
  for (let round = 0; round < 3; round++) {
    const found = await consumeAndCancel("grpc");
    attempts.push(...found.map((each) => each.attempt));
  }
  const leased = await call("Lease", { queue: "grpc", max: 10, waitMs: 10000 });
  attempts.push(...leased.messages.map((each) => each.attempt));
  const acked = await call("Ack", { receipts: leased.messages.map((each) => each.receipt) });
  console.log(JSON.stringify({ results: acked.results.map(({ status }) => ({ status })), attempts }));
  broker.close();
}

main();
