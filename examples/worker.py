"""A worker and its queue in one program, without a server. No message is lost if it is killed.

python examples/worker.py            data in ./worker-data
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

import penstock
from penstock import Message, Reject, Retry

client = penstock.open(sys.argv[1] if len(sys.argv) > 1 else "./worker-data")


@dataclass
class Email:
    to: str
    subject: str = ""


@client.worker("emails", concurrency=4, retries=3, timeout=10)
async def send(email: Email, message: Message) -> None:
    if "@" not in email.to:
        raise Reject("this is not an address")
    if email.to.startswith("busy") and message.attempt == 1:
        raise Retry("the mail server is busy", delay=0.2)
    await asyncio.sleep(0.01)
    print(f"sent to {email.to} on attempt {message.attempt}")


async def main() -> None:
    async with client:
        emails = client.queue("emails")
        for address in ("ada@example.org", "busy@example.org", "nobody"):
            await send.publish(Email(address))
        # `client.run()` runs without end; this ends after a while without messages.
        await client.run_workers(wait=1.0)
        for letter in (await emails.dead_letters()).messages:
            print(f"dead letter: {letter.payload}: {letter.error}")


if __name__ == "__main__":
    asyncio.run(main())
