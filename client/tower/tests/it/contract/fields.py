# Parses structured fields with the library of an editor of RFC 9651, and prints their members.
import json
import sys

import http_sf

fields = json.load(sys.stdin)
print(json.dumps([http_sf.parse(field.encode(), tltype="list") for field in fields]))
