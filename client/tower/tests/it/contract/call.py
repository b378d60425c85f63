# Calls a method once with the gRPC library of Google, and prints the status, its details and its metadata.
import json
import sys

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

given = json.load(sys.stdin)
options = [("grpc.service_config", json.dumps(given["config"]))] if given["config"] else []
channel = grpc.insecure_channel(given["address"], options)
call = channel.unary_unary(given["method"])
printed = {"code": "OK", "details": {}, "metadata": {}}
try:
    call(b"", timeout=given["timeout_s"], metadata=[tuple(pair) for pair in given["metadata"]])
except grpc.RpcError as error:
    printed["code"], printed["message"] = error.code().name, error.details()
    printed["metadata"] = {key: value for key, value in error.trailing_metadata() if isinstance(value, str)}
    status = rpc_status.from_call(error)
    for detail in status.details if status else []:
        if detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            info = error_details_pb2.RetryInfo()
            detail.Unpack(info)
            printed["details"]["retry_ms"] = info.retry_delay.ToMilliseconds()
        elif detail.Is(error_details_pb2.QuotaFailure.DESCRIPTOR):
            info = error_details_pb2.QuotaFailure()
            detail.Unpack(info)
            printed["details"]["violations"] = [[one.subject, one.description] for one in info.violations]
        elif detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            info = error_details_pb2.ErrorInfo()
            detail.Unpack(info)
            printed["details"]["info"] = [info.reason, info.domain, dict(info.metadata)]
print(json.dumps(printed))
