"""Gets a URL and comes back only if that does no harm: after the time asked, apart from others, within a budget."""
import random
import sys
import time
import urllib.error
import urllib.request

budget = 10.0  # retries: a request adds a tenth


def get(url, deadline_s=20.0, retries=3, cap_s=30.0):
    global budget
    ends, budget = time.monotonic() + deadline_s, min(budget + 0.1, 10.0)
    for attempt in range(1, retries + 2):
        try:
            request = urllib.request.Request(url, headers={"x-plimsoll-attempt": str(attempt)})
            return urllib.request.urlopen(request, timeout=max(ends - time.monotonic(), 0.001))
        except urllib.error.HTTPError as refusal:
            asked = refusal.headers.get("retry-after", "")
            asked = float(asked) if asked.isdecimal() else 0.0
            wait = asked + random.random() * max(asked, 0.1 * 2**attempt)
            is_used_up = refusal.headers.get("x-ratelimit-reason") == "tenant_quota_exceeded"
            is_late = wait > cap_s or time.monotonic() + wait > ends
            if refusal.code not in (429, 503) or is_used_up or is_late or budget < 1 or attempt > retries:
                raise
            budget -= 1
            time.sleep(wait)


if __name__ == "__main__":  # python3 retry.py URL
    try:
        print(get(sys.argv[1]).status)
    except urllib.error.HTTPError as refused:
        print(refused.code)
