# Checks documents against a JSON schema, formats included, and prints the faults of each.
import json
import sys

import jsonschema

given = json.load(sys.stdin)
schema = jsonschema.Draft202012Validator
assert "uri-reference" in schema.FORMAT_CHECKER.checkers, "no checker of references"
checks = schema(given["schema"], format_checker=schema.FORMAT_CHECKER)
print(json.dumps([[fault.json_path for fault in checks.iter_errors(document)] for document in given["documents"]]))
