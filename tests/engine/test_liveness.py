"""Messages that Dask keeps for a time on the wall clock: sent by whoever is asked for a sign of life."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest
from distributed import LocalCluster
from distributed.batched import BatchedSend
from distributed.comm import connect, listen
from distributed.utils import LoopRunner

from dpdist.engine.connection import new_client
from dpdist.engine.liveness import flush


@pytest.mark.parametrize("kind", ["worker", "scheduler"])
def test_a_batch_that_waits_for_tomorrow_goes_out_when_it_is_asked_for(kind):
    """On a real connection."""

    async def wait(flushed: bool) -> list[Any]:
        arrived: asyncio.Queue[Any] = asyncio.Queue()

        async def receive(comm: Any) -> None:
            while True:
                for message in await comm.read():
                    arrived.put_nowait(message)

        listener = await listen("tcp://127.0.0.1:0", receive)
        stream = BatchedSend(interval="1 day")  # its deadline is then as far off as after a clock went back
        stream.start(await connect(listener.contact_address))
        stream.send("first")
        found = [await asyncio.wait_for(arrived.get(), 30)]
        stream.send("second")
        await asyncio.sleep(0.1)
        asked = type(kind, (), {"batched_stream": stream} if kind == "worker" else {"stream_comms": {"a": stream}})()
        if flushed:
            flush()(asked)
        with contextlib.suppress(TimeoutError):
            found.append(await asyncio.wait_for(arrived.get(), 30 if flushed else 1))
        stream.abort()
        listener.stop()
        return found

    assert asyncio.run(wait(flushed=True)) == ["first", "second"]
    assert asyncio.run(wait(flushed=False)) == ["first"], "else there is nothing to flush"


def test_a_connection_that_is_collected_takes_no_lock_of_others():
    """The collector may come while another connection is being made, in the very thread that makes it."""

    def collected() -> None:
        with LoopRunner._lock:
            client.__del__()

    with LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster:
        client = new_client(cluster)
        thread = threading.Thread(target=collected, daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
        client.close()
