"""The drawings of the chapter on Spark that show a whole: how things meet, and where they run."""

from __future__ import annotations

from docs.drawings.shapes import GREY, Box, Drawing


def overview() -> Drawing:
    """A topic, the source, tasks, the sink, a topic."""
    drawing = Drawing(800, 318, "Topic, source, tasks, sink, topic")
    drawing.frame(8, 8, 138, 302, "topic flights")
    drawing.frame(162, 8, 474, 302, "Spark")
    drawing.frame(652, 8, 140, 302, "topic totals")
    queues = [
        drawing.box(20, 150 + row * 38, 114, 28, name, kind="broker")
        for row, name in enumerate(["broker-a, queue 0", "broker-a, queue 1", "broker-b, queue 0"])
    ]
    planner = drawing.box(
        176, 40, 216, 58, "source, beside the driver", "who reads from where to where", kind="spark"
    )
    checkpoint = drawing.box(462, 40, 160, 58, "checkpoint", "offsets of each batch", kind="kept")
    tasks = [
        drawing.box(
            176, 162 + row * 62, 116, 46, f"task {row + 1}", "pulls, to Arrow", kind="spark"
        )
        for row in range(2)
    ]
    query = drawing.box(330, 162, 116, 108, "your query", "select, join,", "count", kind="yours")
    sinks = [
        drawing.box(
            484, 162 + row * 62, 138, 46, f"task {row + 1}", "rows in batches", kind="spark"
        )
        for row in range(2)
    ]
    results = [
        drawing.box(664, 166 + row * 62, 116, 38, f"broker-{name}, queue 0", kind="broker")
        for row, name in enumerate("ab")
    ]
    drawing.arrow(queues[0].right, tasks[0].at(0, 0.3))
    drawing.arrow(queues[1].right, tasks[0].at(0, 0.8))
    drawing.arrow(queues[2].right, tasks[1].left)
    for task, sink, result in zip(tasks, sinks, results, strict=True):
        drawing.arrow(task.right, (query.x, task.right[1]))
        drawing.arrow((query.x + query.width, sink.left[1]), sink.left)
        drawing.arrow(sink.right, result.left)
        drawing.arrow((planner.x + 50, 98), (planner.x + 50, 162), dashed=True, colour=GREY)
    drawing.words(planner.x + 60, 128, "the plan, a range of", "offsets for each task", colour=GREY)
    drawing.arrow(planner.right, checkpoint.left)
    drawing.arrow((planner.x, 74), (77, 74), (77, 148), dashed=True, colour=GREY)
    drawing.words(20, 44, "ends of queues?", "group's offsets", colour=GREY)
    drawing.words(484, 128, "acknowledged before a", "task has succeeded", colour=GREY)
    drawing.words(176, 298, 'reading: format("rocketmq")', colour=GREY)
    drawing.words(622, 298, 'writing: format("rocketmq")', anchor="end", colour=GREY)
    return drawing


def pipeline() -> Drawing:
    """The tables and flows of a declarative pipeline."""
    drawing = Drawing(800, 262, "A declarative pipeline around a topic")
    drawing.frame(146, 8, 500, 246, "the project: spark-pipelines run")
    orders = drawing.box(8, 62, 114, 46, "topic", "orders", kind="broker")
    bronze = drawing.box(164, 62, 106, 46, "bronze", "as it came", kind="spark")
    cleaned = drawing.box(332, 62, 128, 46, "cleaned", "fields, expected", kind="spark")
    totals = drawing.box(526, 40, 108, 40, "totals", "by customer", kind="spark")
    minutes = drawing.box(526, 108, 108, 40, "minutes", "by minute", kind="spark")
    rejected = drawing.box(332, 188, 128, 46, "rejected", "which, and why", kind="spark")
    results = drawing.box(672, 105, 120, 46, "topic", "orders-totals", kind="broker")
    dead = drawing.box(672, 188, 120, 46, "topic", "orders-rejected", kind="broker")
    report = drawing.box(672, 37, 120, 46, "your reports", "a table to query", kind="yours")
    for start, end in (
        (orders.right, bronze.left),
        (bronze.right, cleaned.left),
        (minutes.right, results.left),
        (rejected.right, dead.left),
        (totals.right, report.left),
    ):
        drawing.arrow(start, end)
    drawing.arrow(cleaned.at(1, 0.35), (492, 78), (492, 60), totals.left)
    drawing.arrow(cleaned.at(1, 0.65), (492, 92), (492, 128), minutes.left)
    drawing.arrow(bronze.bottom, (217, 211), rejected.left)
    drawing.words(278, 50, "as expected", colour=GREY)
    drawing.words(226, 170, "not as expected", colour=GREY)
    drawing.words(158, 244, "each run takes what is new", colour=GREY)
    return drawing


def listeners() -> Drawing:
    """A failed message goes back, comes again, and in the end to the dead letters."""
    drawing = Drawing(800, 300, "Listeners on Spark: retries and dead letters")
    drawing.frame(8, 8, 180, 284, "brokers")
    drawing.frame(236, 8, 556, 174, "Spark: process(stream, listener, group)")
    topic = drawing.box(22, 56, 152, 40, "topic orders", kind="broker")
    retry = drawing.box(
        22, 130, 152, 46, "%RETRY%mailers", "one delay after another", kind="broker"
    )
    dead = drawing.box(22, 232, 152, 46, "%DLQ%mailers", "dead letters", kind="broker")
    batch = drawing.box(254, 76, 108, 60, "micro-batch", "of both topics", kind="spark")
    listener = drawing.box(
        430, 62, 150, 88, "your listener", "in each task, by", "consume_threads", kind="yours"
    )
    done = drawing.box(644, 76, 136, 60, "done", "checkpoint goes on", kind="kept")
    drawing.arrow(topic.right, (212, 76), (212, 92), batch.at(0, 0.27))
    drawing.arrow(retry.at(1, 0.3), (212, 144), (212, 120), batch.at(0, 0.73))
    drawing.arrow(batch.right, listener.left)
    drawing.arrow(listener.right, done.left)
    drawing.words(611, 98, "ok", anchor="middle", colour=GREY)
    drawing.arrow(listener.at(0.4, 1), (490, 210), (212, 210), (212, 166), retry.at(1, 0.78))
    drawing.arrow(listener.at(0.7, 1), (535, 255), dead.right)
    drawing.words(228, 204, "failed: back to its broker, which puts it off", colour=GREY)
    drawing.words(228, 249, "failed max_reconsume_times: given up", colour=GREY)
    return drawing


def writing() -> Drawing:
    """The rows of a task find their queues, and travel in batches."""
    drawing = Drawing(800, 208, "A task writes: rows, queues, batches")
    drawing.frame(8, 8, 580, 192, "a task")
    drawing.frame(628, 8, 164, 192, "topic orders")
    rows = drawing.box(
        20, 76, 118, 62, "rows", "checked, an Arrow", "batch at a time", kind="spark"
    )
    place = drawing.box(
        176, 52, 170, 110, "which queue?", "queueId, or", "queueSelector, or", "shardingKey, or",
        "the next in turn",
    )  # fmt: skip
    drawing.arrow(rows.right, place.left)
    for number, name in enumerate(["broker-a, queue 0", "broker-a, queue 1", "broker-b, queue 0"]):
        y = 44 + 52 * number
        batch = drawing.box(414, y, 110, 34, "batch: 256 KB", kind="kept")
        drawing.box(642, y, 136, 34, name, kind="broker")
        drawing.arrow(place.at(1, 0.2 + 0.3 * number), batch.left)
        drawing.arrow((524, y + 10), (642, y + 10))
        drawing.arrow((642, y + 25), (524, y + 25), dashed=True, colour=GREY)
    drawing.words(530, 192, "acknowledged", colour=GREY, anchor="middle")
    return drawing


def queues() -> Drawing:
    """Partitions are numbered by topic, queues by broker."""
    drawing = Drawing(800, 176, "Partitions of Kafka, queues of RocketMQ")
    for left, title, names, offsets in (
        (
            8,
            "Kafka: topic flights",
            ("partition 0", "partition 2", "partition 1", "partition 3"),
            '{"flights": {"0": 23, "1": -1, ...}}',
        ),
        (
            408,
            "RocketMQ: topic flights",
            ("queue 0", "queue 1", "queue 0", "queue 1"),
            '{"broker-a": {"0": 23}, "broker-b": {"0": 7}}',
        ),
    ):
        drawing.words(left, 20, title, bold=True)
        for number, name in enumerate(names):
            broker, row = divmod(number, 2)
            x = left + 190 * broker
            if not row:
                drawing.frame(x, 30, 180, 104, f"broker-{'ab'[broker]}")
            drawing.box(x + 14, 58 + 36 * row, 152, 28, name, kind="broker")
        drawing.words(left, 160, offsets, colour=GREY)
    return drawing


def decoding() -> Drawing:
    """Bodies become columns, and what does not decode is kept."""
    drawing = Drawing(800, 156, "Decoded bodies, and those that cannot be")
    topic = drawing.box(8, 50, 112, 46, "topic prices", "bytes", kind="broker")
    decode = drawing.box(180, 50, 108, 46, "decode", "schema", kind="spark")
    typed = drawing.box(416, 12, 140, 46, "typed columns", "error IS NULL", kind="spark")
    failed = drawing.box(416, 92, 140, 52, "error", "reason, body, origin", kind="lost")
    query = drawing.box(656, 12, 136, 46, "your query", kind="yours")
    dead = drawing.box(656, 92, 136, 52, "topic prices-dead", "same bytes, and why", kind="broker")
    drawing.arrow(topic.right, decode.left)
    drawing.arrow(decode.at(1, 0.35), (350, 66), (350, 35), typed.left)
    drawing.arrow(decode.at(1, 0.65), (350, 80), (350, 118), failed.left)
    drawing.arrow(typed.right, query.left)
    drawing.arrow(failed.right, dead.left)
    drawing.words(606, 110, "dead_letters", anchor="middle", colour=GREY)
    return drawing


def archive() -> Drawing:
    """A topic as a directory of Parquet files, and a topic again."""
    drawing = Drawing(800, 178, "A topic to Parquet files, and back")
    topic = drawing.box(8, 62, 112, 46, "topic", "flights", kind="broker")
    drawing.frame(226, 8, 348, 162, "flights-archive/")
    for row, name in enumerate(
        [
            "day=2026-11-21/part-00000001.parquet",
            "day=2026-11-22/part-00000001.parquet",
            "day=2026-11-22/part-00000002.parquet",
        ]
    ):
        drawing.box(240, 36 + row * 28, 320, 24, name, kind="kept")
    drawing.words(246, 136, "_archive.json: how far it goes", colour=GREY)
    drawing.words(246, 156, "_replays/*.json: how far replays came", colour=GREY)
    again = drawing.box(678, 62, 114, 46, "topic", "flights-again", kind="broker")
    drawing.arrow(topic.right, (226, 85))
    drawing.arrow((574, 85), again.left)
    drawing.words(173, 78, "archive", anchor="middle")
    drawing.words(626, 78, "replay", anchor="middle")
    return drawing


def places() -> Drawing:
    """One machine, a cluster, Spark Connect."""
    drawing = Drawing(800, 352, "Where Spark and OrbitMQ run")
    drawing.frame(8, 8, 210, 224, "local, a notebook")
    drawing.frame(230, 8, 250, 224, "a cluster")
    drawing.frame(492, 8, 300, 224, "Spark Connect")
    brokers = drawing.box(8, 268, 784, 30, "name servers and brokers", kind="broker")

    program = drawing.box(
        24, 46, 178, 58, "your program, the driver", "Python*, Java", kind="yours"
    )
    worker = drawing.box(24, 158, 178, 58, "Python workers*", "one for each core", kind="spark")
    drawing.arrow(program.bottom, worker.top)

    driver = drawing.box(
        266, 46, 178, 58, "spark-submit, the driver", "Python*, Java", kind="yours"
    )
    remote = drawing.box(508, 46, 124, 58, "your program", "Python", kind="yours")
    server = drawing.box(660, 46, 118, 58, "server", "Python*, Java", kind="spark")
    drawing.arrow(remote.right, server.left)
    drawing.words(570, 124, "sc://", anchor="middle", colour=GREY)
    for boss, left, width in ((driver, 246, 104), (server, 536, 116)):
        for number in (1, 2):
            box = drawing.box(
                left + (number - 1) * (width + 10),
                158,
                width,
                58,
                f"worker {number}",
                "Python*, Java",
                kind="spark",
            )
            drawing.arrow(boss.at(0.3 + 0.4 * (number - 1), 1), box.top)
            _ask(drawing, box, brokers)
    _ask(drawing, worker, brokers)
    drawing.words(
        8,
        322,
        "* has OrbitMQ installed. Driver and workers must reach all brokers: workers read and write"
        " there themselves.",
        "They see the same checkpoint directory. A client of Spark Connect needs no"
        " Java and no broker.",
        colour=GREY,
    )
    return drawing


def _ask(drawing: Drawing, worker: Box, brokers: Box) -> None:
    x, bottom = worker.bottom
    drawing.arrow((x, bottom), (x, brokers.y))
