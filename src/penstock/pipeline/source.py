"""The data source `penstock`: chooses the reader or writer for a table."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.pipeline.options import Options, PipelineError
from penstock.pipeline.schema import ddl, mismatch

_NO_TABLES = (
    "the data source has no options here: Spark does not hand the OPTIONS of CREATE TABLE to a Python data source. In "
    "SQL use CREATE TEMPORARY VIEW orders USING penstock OPTIONS (url '…', queue 'orders'), or name the options in the "
    "query: SELECT … FROM orders WITH (url = '…', queue = 'orders')"
)


class PenstockDataSource(DataSource):
    """Spark registers it by itself, through the module `pyspark_penstock`."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        if "provider" in self.options:  # a property of a catalog table
            raise PipelineError(_NO_TABLES)
        options = self._parsed()
        return ddl(options.table, self._payload_schema(options), headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.pipeline.batch import EventsReader, MessagesReader, RowsReader

        options = self._checked(schema)
        if options.table == "events":
            return EventsReader(options, schema)
        if options.table == "messages":
            return MessagesReader(options, schema)
        return RowsReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from penstock.pipeline.stream import EventsStreamReader, MessagesStreamReader

        options = self._checked(schema)
        if options.table == "events":
            return EventsStreamReader(options, schema)
        if options.table == "messages":
            return MessagesStreamReader(options, schema)
        raise PipelineError(
            f"table {options.table!r} is a snapshot and cannot be streamed: use spark.read, or stream `events`"
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.pipeline.sink import BatchSink

        if overwrite:
            raise PipelineError(
                'messages are only ever added: use .mode("append"). To begin with an empty queue, purge it first'
            )
        return BatchSink(self._parsed(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from penstock.pipeline.sink import StreamSink

        if overwrite:
            raise PipelineError('messages are only ever added: use .outputMode("append") or .outputMode("update")')
        if "lakeDirectory" in self.options:
            from penstock.pipeline.lake.sink import LakeWriter

            given = self.options
            return LakeWriter(given["lakeDirectory"], given["table"], given.get("queue"), given.get("queueUuid"))
        return StreamSink(self._parsed(), schema)

    def _parsed(self) -> Options:
        if not self.options:
            raise PipelineError(_NO_TABLES)
        return Options(self.options)

    def _checked(self, schema: StructType) -> Options:
        options = self._parsed()
        wrong = mismatch(options.table, schema, has_value=self._payload_schema(options) is not None)
        if wrong is not None:
            raise PipelineError(wrong)
        return options

    def _payload_schema(self, options: Options) -> str | None:
        given = options.payload_schema
        if given is not None and options.table not in ("messages", "dead_letters"):
            raise PipelineError(f"payloadSchema: table {options.table!r} has no payloads")
        return given
