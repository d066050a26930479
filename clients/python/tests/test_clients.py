"""Streams that are closed, several coordinators, the other methods, TLS."""

import asyncio
import gc
import pathlib
import subprocess
import tempfile
import threading
import unittest

import grpc

import nacre
from fake_server import FakeServer, answer, begin, chunk, complete, refuse
from nacre import _messages as m

QUICK = nacre.Retry(attempts=4, initial=0.001, maximum=0.002)
LONG = 60  # seconds: only a failed test waits so long


def endless(server_ended):
    """An act: one chunk, then nothing until the call ends."""
    def act(request, context):
        yield chunk(0, [7], "a")
        server_ended().wait()
    return act


class CloseTest(unittest.TestCase):
    def setUp(self):
        self.server = FakeServer(endless(lambda: self.server.ended))
        self.addCleanup(self.server.__exit__)
        self.client = nacre.Client(self.server.address, retry=QUICK)
        self.addCleanup(self.client.close)

    def expect_cancelled(self):
        self.assertTrue(self.server.ended.wait(LONG))

    def test_close_cancels(self):
        stream = self.client.stream("hi")
        next(stream)
        with self.assertRaises(nacre.Closed):
            stream.completion
        stream.close()
        self.expect_cancelled()
        self.assertEqual(list(stream), [])
        self.assertEqual(stream.partial.choices[0].token_ids, (7,))

    def test_end_of_with_cancels(self):
        with self.client.stream("hi") as stream:
            next(stream)
        self.expect_cancelled()

    def test_break_cancels(self):
        for _ in self.client.stream("hi"):
            break
        gc.collect()
        self.expect_cancelled()

    def test_close_of_another_thread_ends_the_iteration(self):
        stream = self.client.stream("hi")
        next(stream)
        rest = []
        reader = threading.Thread(target=lambda: rest.extend(stream))
        reader.start()
        stream.close()
        reader.join(LONG)
        self.assertFalse(reader.is_alive())
        self.assertEqual(rest, [])

    def test_closed_client(self):
        stream = self.client.stream("hi")
        next(stream)
        self.client.close()
        with self.assertRaises(nacre.Cancelled) as caught:
            next(stream)
        self.assertEqual(caught.exception.partial.tokens, 1)
        with self.assertRaises(nacre.Closed):
            self.client.generate("hi")
        with self.assertRaises(nacre.Closed):
            self.client.model()

    def test_close_ends_a_wait_for_the_next_attempt(self):
        with FakeServer(refuse(grpc.StatusCode.UNAVAILABLE)) as server:
            retry = nacre.Retry(initial=1000, maximum=1000)
            with nacre.Client(server.address, retry=retry) as client:
                stream = client.stream("hi")
                reader = threading.Thread(target=lambda: list(stream))
                reader.start()
                self.assertTrue(server.ended.wait(LONG))
                stream.close()
                reader.join(LONG)
                self.assertFalse(reader.is_alive())


class AsyncCloseTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.server = FakeServer(endless(lambda: self.server.ended))
        self.client = nacre.AsyncClient(self.server.address, retry=QUICK)

    async def asyncTearDown(self):
        await self.client.aclose()
        self.server.__exit__()

    async def expect_cancelled(self):
        loop = asyncio.get_running_loop()
        ended = await loop.run_in_executor(None, self.server.ended.wait, LONG)
        self.assertTrue(ended)

    async def test_end_of_with_cancels(self):
        async with self.client.stream("hi") as stream:
            await stream.__anext__()
        await self.expect_cancelled()
        with self.assertRaises(StopAsyncIteration):
            await stream.__anext__()

    async def test_break_cancels(self):
        async for _ in self.client.stream("hi"):
            break
        gc.collect()
        await self.expect_cancelled()

    async def reader_of_rest(self):
        stream = self.client.stream("hi")
        await stream.__anext__()

        async def read():
            return [chunk async for chunk in stream]

        task = asyncio.create_task(read())
        await asyncio.sleep(0)  # it waits for the next chunk now
        return stream, task

    async def test_aclose_of_another_task_ends_the_iteration(self):
        stream, task = await self.reader_of_rest()
        await stream.aclose()
        self.assertEqual(await asyncio.wait_for(task, LONG), [])
        await self.expect_cancelled()

    async def test_cancelled_task(self):
        _, task = await self.reader_of_rest()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await self.expect_cancelled()

    async def test_closed_client(self):
        _, task = await self.reader_of_rest()
        await self.client.aclose()
        with self.assertRaises(nacre.Cancelled) as caught:
            await asyncio.wait_for(task, LONG)
        self.assertEqual(caught.exception.partial.tokens, 1)
        with self.assertRaises(nacre.Closed):
            await self.client.generate("hi")
        with self.assertRaises(nacre.Closed):
            await self.client.model()


class CloseWhileAskingTest(unittest.TestCase):
    """An answer was cut off, and the coordinator is asked whether it is there."""

    @staticmethod
    def gone(request, context):
        yield begin(chunk(0, [7], "a"), 5)
        context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    def setUp(self):
        self.asked, self.ended = threading.Event(), threading.Event()

        def hold(request, context):
            if not context.add_callback(self.ended.set):
                self.ended.set()
            self.asked.set()
            self.ended.wait(LONG)
            return m.Model()

        self.server = FakeServer(self.gone, model=hold)
        self.addCleanup(self.server.__exit__)

    def blocking(self, close):
        with nacre.Client(self.server.address, retry=QUICK) as client:
            stream = client.stream("hi", seed=5)
            next(stream)
            outcome = []

            def read():
                try:
                    outcome.append(list(stream))
                except Exception as error:
                    outcome.append(type(error))

            reader = threading.Thread(target=read)
            reader.start()
            self.assertTrue(self.asked.wait(LONG))
            close(client, stream)
            reader.join(LONG)
            return outcome

    async def asynchronous(self, close):
        async with nacre.AsyncClient(self.server.address, retry=QUICK) as client:
            stream = client.stream("hi", seed=5)
            await stream.__anext__()

            async def read():
                return [chunk async for chunk in stream]

            task = asyncio.create_task(read())
            loop = asyncio.get_running_loop()
            self.assertTrue(await loop.run_in_executor(None, self.asked.wait, LONG))
            await close(client, stream)
            try:
                return [await asyncio.wait_for(task, LONG)]
            except nacre.NacreError as error:
                return [type(error)]

    def test_blocking_stream(self):
        self.assertEqual(self.blocking(lambda client, stream: stream.close()), [[]])

    def test_blocking_client(self):
        self.assertEqual(self.blocking(lambda client, stream: client.close()), [nacre.Closed])

    def test_asynchronous_stream(self):
        self.assertEqual(
            asyncio.run(self.asynchronous(lambda client, stream: stream.aclose())), [[]])

    def test_asynchronous_client(self):
        self.assertEqual(
            asyncio.run(self.asynchronous(lambda client, stream: client.aclose())),
            [nacre.Closed])


class StreamTest(unittest.TestCase):
    def test_chunks_in_order(self):
        with FakeServer(answer) as server, nacre.Client(server.address) as client:
            stream = client.stream([1, 2])
            chunks = [(c.index, c.first_index, c.token_ids, c.text) for c in stream]
            self.assertEqual(chunks, [(0, 0, (7, 8), "ab"), (0, 2, (9,), "c")])
            self.assertEqual(stream.completion.text, "abc")

    def test_logprobs(self):
        def act(request, context):
            response = chunk(0, [7], "a")
            token = response.chunk.logprobs.add(token_id=7, logprob=-0.5)
            token.top_ids.append(7)
            token.top_logprobs.append(-0.5)
            yield response

        with FakeServer(act) as server, nacre.Client(server.address) as client:
            (told,) = next(client.stream("hi", logprobs=1)).logprobs
        self.assertEqual((told.token_id, told.logprob, told.top), (7, -0.5, ((7, -0.5),)))

    def test_prompt_logprobs(self):
        def act(request, context):
            response = chunk(0, [7], "a")
            response.chunk.prompt_logprobs.add(token_id=5, logprob=-2)
            yield response
            yield complete(1)

        with FakeServer(act) as server, nacre.Client(server.address) as client:
            (told,) = client.generate("hi", prompt_logprobs=0).choices[0].prompt_logprobs
        self.assertEqual((told.token_id, told.logprob, told.top), (5, -2.0, ()))

    def test_timeout_reaches_the_server(self):
        with FakeServer(answer) as server, nacre.Client(server.address) as client:
            client.generate("hi", timeout=50)
            client.generate("hi")
        self.assertTrue(0 < server.deadlines[0] < 51)  # it is rounded
        self.assertTrue(server.deadlines[1] is None or server.deadlines[1] > 1e6)

    def test_next_coordinator(self):
        refusing = FakeServer(refuse(grpc.StatusCode.UNAVAILABLE))
        with refusing, FakeServer(answer) as well:
            addresses = [refusing.address, well.address]
            with nacre.Client(addresses, retry=QUICK) as client:
                self.assertEqual(client.generate("hi").text, "abc")
            self.assertEqual((len(refusing.seen), len(well.seen)), (1, 1))


class OtherMethodsTest(unittest.TestCase):
    SCRIPT = (refuse(grpc.StatusCode.UNAVAILABLE),
              lambda request, context: m.TokenizeResponse(token_ids=[4, 5]),
              refuse(grpc.StatusCode.INVALID_ARGUMENT, "too long"))

    @staticmethod
    def serve():
        asked = []

        def answer_model(request, context):
            asked.append(request)
            if len(asked) == 1:
                context.abort(grpc.StatusCode.UNAVAILABLE, "no")
            return m.Model(name="t", eos_token_ids=[2])

        return FakeServer(*OtherMethodsTest.SCRIPT, model=answer_model)

    def test_blocking(self):
        with self.serve() as server, \
                nacre.Client(server.address, retry=QUICK) as client:
            model = client.model()
            self.assertEqual((model.name, model.eos_token_ids), ("t", (2,)))
            self.assertEqual(client.tokenize("x", special_tokens=False), [4, 5])
            with self.assertRaisesRegex(nacre.InvalidArgument, "too long"):
                client.tokenize("x")
        self.assertTrue(server.seen[1].no_special_tokens)
        self.assertFalse(server.seen[2].no_special_tokens)

    def test_asynchronous(self):
        async def run():
            with self.serve() as server:
                async with nacre.AsyncClient(server.address, retry=QUICK) as client:
                    self.assertEqual((await client.model()).name, "t")
                    self.assertEqual(await client.tokenize("x"), [4, 5])
                    with self.assertRaisesRegex(nacre.InvalidArgument, "too long"):
                        await client.tokenize("x")

        asyncio.run(run())


class TlsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.key = pathlib.Path(folder.name, "key.pem")
        cls.cert = pathlib.Path(folder.name, "cert.pem")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
             "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=nacre",
             "-addext", "subjectAltName=DNS:nacre.internal",
             "-keyout", cls.key, "-out", cls.cert], check=True, capture_output=True)

    def server(self, ask_client=False):
        pair = [(self.key.read_bytes(), self.cert.read_bytes())]
        return FakeServer(answer, credentials=grpc.ssl_server_credentials(
            pair, self.cert.read_bytes() if ask_client else None, ask_client))

    def test_name_and_authority(self):
        tls = nacre.Tls(ca=self.cert, server_name="nacre.internal")
        with self.server() as server:
            with nacre.Client(server.address, tls=tls) as client:
                self.assertEqual(client.generate("hi").text, "abc")
            for wrong in (nacre.Tls(ca=self.cert), True, False):
                with nacre.Client(server.address, tls=wrong, retry=QUICK) as client:
                    with self.assertRaises(nacre.Unavailable):
                        client.generate("hi")

    def test_client_certificate(self):
        name = "nacre.internal"
        shown = nacre.Tls(self.cert, self.cert, self.key, name)
        with self.server(ask_client=True) as server:
            with nacre.Client(server.address, tls=shown) as client:
                self.assertEqual(client.generate("hi").text, "abc")
            with nacre.Client(server.address, tls=nacre.Tls(self.cert, None, None, name),
                              retry=QUICK) as client:
                with self.assertRaises(nacre.Unavailable):
                    client.generate("hi")


if __name__ == "__main__":
    unittest.main()
