"""The calls of the API without I/O: the request, and the reading of the answer.

`call` has the `Call` itself and the calls that answer a JSON object; `bulk` the calls of the pipeline.
"""
