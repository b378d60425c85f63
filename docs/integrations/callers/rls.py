# Asks a sidecar over Envoy's rate limit service. pip install grpcio xds-protos; python3 rls.py 127.0.0.1:7420 checkout acme
import sys

import grpc
from envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from envoy.service.ratelimit.v3.rls_pb2_grpc import RateLimitServiceStub

address, bucket, tenant = sys.argv[1:]
descriptor = RateLimitDescriptor(entries=[{"key": "bucket", "value": bucket}, {"key": "tenant", "value": tenant}])
try:
    stub = RateLimitServiceStub(grpc.insecure_channel(address))
    answer = stub.ShouldRateLimit(RateLimitRequest(domain="any", descriptors=[descriptor]), timeout=0.05)
    refused = answer.overall_code == RateLimitResponse.OVER_LIMIT
except grpc.RpcError as error:  # without a sidecar the request passes
    print(error.details(), file=sys.stderr)
    refused = False
print("refused" if refused else "allowed")
