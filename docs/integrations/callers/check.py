"""Asks a Plimsoll sidecar about each request. Without an answer in 50 ms the request is served."""
import http.client
import json
import sys

sidecar = http.client.HTTPConnection("127.0.0.1", 7421, timeout=0.05)  # one for each thread


def is_allowed(bucket, tenant):
    try:
        body = json.dumps({"bucket": bucket, "tenant": tenant})
        sidecar.request("POST", "/v1/check", body, {"content-type": "application/json"})
        response = sidecar.getresponse()
        answer = json.loads(response.read())
        return response.status != 200 or answer["allowed"]
    except (OSError, http.client.HTTPException, ValueError):
        sidecar.close()  # the next request connects again
        return True


if __name__ == "__main__":  # python3 check.py PORT BUCKET TENANT
    sidecar.port = int(sys.argv[1])
    print("allowed" if is_allowed(*sys.argv[2:4]) else "refused")
