//! The admin port of a fleet under load does as its OpenAPI document says, for requests that fit it and that do not, as
//! Schemathesis makes them.

use plimsoll_testing::process::{Process, has_python_package, http_get, python, until_true};
use plimsoll_testing::turns::turn;
use serde_json::json;

/// Load of the demo, in requests/s.
const OFFERED: u32 = 5_000;
/// Prints failures as errors, since only these are read.
const PROGRAM: &str = "
import contextlib, io, json, os, sys, tempfile, urllib.request
from schemathesis.cli import schemathesis

address, options = json.load(sys.stdin)
with urllib.request.urlopen(f'http://{address}/openapi.json') as answer:
    document = json.load(answer)
# Programs on this machine need no token at the demo, and one that they invent is refused.
del document['components']['securitySchemes']
for operation in [document, *(of for path in document['paths'].values() for of in path.values())]:
    operation.pop('security', None)
printed = io.StringIO()
# It keeps what it found in the folder where it runs.
with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed):
    os.chdir(folder)
    with open('document.json', 'w') as file:
        json.dump(document, file)
    try:
        schemathesis(['run', 'document.json', '--url', f'http://{address}', *options.split()])
    except SystemExit as ended:
        code = ended.code
if code:
    sys.exit(repr(printed.getvalue()))
";
/// Requests for each operation, by each kind of data.
const EXAMPLES: u32 = 40;
/// A stream lasts for a minute, and a drill as long as it is told.
const ENDLESS: [&str; 2] = ["/console/stream", "/kill/drill"];
/// Valid requests for names that there are not are refused.
const UNFIT: &str = "positive_data_acceptance";

#[test]
fn admin_port_does_as_its_document_says() {
    if !has_python_package("fleets::openapi", "schemathesis") {
        return;
    }
    let _turn = turn(OFFERED);
    let up = Process::spawn(&["up"]);
    until_true("the demo to run", || {
        up.output().contains("\nbucket / tenant")
    });
    let output = up.output();
    let console = output.lines().find(|line| line.starts_with("console"));
    let (_, url) = console.unwrap().split_once("http://").unwrap();
    let address = url.split('/').next().unwrap();
    let without: String = ENDLESS
        .iter()
        .map(|path| format!(" --exclude-path {path}"))
        .collect();
    let options = format!(
        "--checks all --exclude-checks {UNFIT}{without} --max-examples {EXAMPLES} --seed 1 --continue-on-failure \
         --suppress-health-check all --request-timeout 60"
    );
    let input = json!([address, options]).to_string();
    python(PROGRAM, &input).unwrap_or_else(|error| panic!("{error}"));
    let (status, body) = http_get(address.parse().unwrap(), "/healthz");
    assert_eq!((status, body.as_str()), (200, "alive\n"));
}
