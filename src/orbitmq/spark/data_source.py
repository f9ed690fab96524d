"""The data source Spark finds as ``format("rocketmq")``.

Every Python process Spark starts to plan something imports this module, so it imports no more than
such a process has anyway; the rest comes when a method needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from orbitmq.spark.prompt import Prompt

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceWriter
    from pyspark.sql.types import StructType

    from orbitmq.spark.sink.writer import RocketMQStreamWriter


class RocketMQDataSource(Prompt, DataSource):
    """Reads topics of RocketMQ, as a batch or a stream, and writes to them.

    The options are described in :mod:`orbitmq.spark.source.options` and
    :mod:`orbitmq.spark.sink.options`, the columns in :mod:`orbitmq.spark.source.schema` and
    :mod:`orbitmq.spark.sink.schema`. All errors in either are ConfigErrors.
    """

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "rocketmq"

    def schema(self) -> StructType:
        """The usual columns, or all. With a schema of your own, those alone are read."""
        from orbitmq.spark.source.options import read_options
        from orbitmq.spark.source.schema import ALL_COLUMNS, READ_SCHEMA

        # Read all options, so that load() fails, not the first action.
        options = read_options(self.options, streaming=None)
        return ALL_COLUMNS if options.include_properties else READ_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        from orbitmq.spark.source.options import read_options
        from orbitmq.spark.source.reader import FilteringReader, RocketMQReader

        options = read_options(self.options, streaming=False)
        return (FilteringReader if options.push_filters else RocketMQReader)(schema, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For ``spark.readStream``."""
        from orbitmq.spark.source.options import read_options
        from orbitmq.spark.source.stream_reader import RocketMQStreamReader

        return RocketMQStreamReader(schema, read_options(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``df.write``."""
        from orbitmq.spark.sink.options import write_options
        from orbitmq.spark.sink.writer import RocketMQWriter

        return RocketMQWriter(schema, write_options(self.options), overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,
    ) -> RocketMQStreamWriter:
        """For ``df.writeStream``; ``overwrite`` is output mode complete, but a topic only grows."""
        from orbitmq.spark.sink.options import write_options
        from orbitmq.spark.sink.writer import RocketMQStreamWriter

        return RocketMQStreamWriter(schema, write_options(self.options))
