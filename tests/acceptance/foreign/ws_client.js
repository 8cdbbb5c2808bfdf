// Publishes, consumes and acks over one WebSocket with ws as it comes, which offers permessage-deflate.
const WebSocket = require("ws");

const socket = new WebSocket(`${process.argv[2].replace("http:", "ws:")}/v1/ws`);
const send = (frame) => socket.send(JSON.stringify(frame));

socket.on("message", (data) => {
  const frame = JSON.parse(data);
  if (frame.type === "hello") {
    send({ type: "publish", id: 1, queue: "ws", messages: [0, 1, 2].map((payload) => ({ payload })) });
  } else if (frame.type === "published") {
    send({ type: "subscribe", id: 2, role: "consumer", queue: "ws", credit: 10 });
  } else if (frame.type === "messages") {
    send({ type: "ack", id: 3, receipts: frame.messages.map((each) => each.receipt) });
    socket.close(); // behind the ack: its answer comes first
  } else if (frame.type === "results") {
    console.log(JSON.stringify({ results: frame.results }));
  } else if (frame.type === "error") {
    throw new Error(JSON.stringify(frame));
  }
});
