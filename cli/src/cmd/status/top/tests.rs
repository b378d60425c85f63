//! Keys and answers as tables, and the screen as it is drawn.

use plimsoll_controller::admin::status::{
    AggregatorStatus, BucketStatus, Problem, Refusals, Status, Traffic,
};
use plimsoll_controller::events::Severity;
use plimsoll_core::names::{Bucket, Tenant};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::draw::draw;
use super::state::{Look, Top};

fn bucket(refused: u64, offered_rps: f64, tenants: &[(&str, f64)]) -> BucketStatus {
    let traffic = |offered_rps, law_ratio| Traffic {
        offered_rps,
        law_ratio,
        ..Traffic::default()
    };
    let tenants = tenants.iter();
    let tenants = tenants.map(|(name, law)| (Tenant::new(name).unwrap(), traffic(1.0, Some(*law))));
    BucketStatus {
        limit_rps: Some(100.0),
        refusals_10_s: Refusals {
            span_s: 10.0,
            asked: 1_000,
            cluster_overload: refused,
            ..Refusals::default()
        },
        traffic: traffic(offered_rps, None),
        tenants: tenants.collect(),
        ..BucketStatus::default()
    }
}

fn fleet() -> Status {
    let aggregator = |zone: &str, released| AggregatorStatus {
        zone: zone.to_owned(),
        name: "n".to_owned(),
        released,
        ..AggregatorStatus::default()
    };
    let buckets = [
        ("api", bucket(0, 5.0, &[("default", 0.0)])),
        (
            "cart",
            bucket(500, 7.0, &[("acme", 0.25), ("default", 0.75)]),
        ),
        ("pay", bucket(0, 9.0, &[("acme", 0.0)])),
    ];
    Status {
        verdict: "1 problem: not saved".to_owned(),
        summary: "3 buckets".to_owned(),
        problems: vec![Problem {
            severity: Severity::Warning,
            subject: "state".to_owned(),
            text: "not saved".to_owned(),
            remedy: "make room".to_owned(),
        }],
        buckets: buckets
            .map(|(name, of)| (Bucket::new(name).unwrap(), of))
            .into(),
        aggregators: vec![aggregator("west", 0.5), aggregator("east", 0.0)],
        ..Status::default()
    }
}

fn look(status: Status, at_s: i64) -> Look {
    Look {
        status: Ok(status),
        why: None,
        at_s,
    }
}

fn failed(failure: &str) -> Look {
    Look {
        status: Err(failure.to_owned()),
        why: None,
        at_s: 0,
    }
}

/// Presses keys: a letter is itself, `v` and `^` are the arrows, `>` is Enter, `<` is Esc, and `_` is Backspace.
fn press(top: &mut Top, keys: &str) -> bool {
    let code = |letter| match letter {
        'v' => KeyCode::Down,
        '^' => KeyCode::Up,
        '>' => KeyCode::Enter,
        '<' => KeyCode::Esc,
        '_' => KeyCode::Backspace,
        letter => KeyCode::Char(letter),
    };
    let mut keys = keys.chars().map(code);
    keys.any(|code| top.key(KeyEvent::new(code, KeyModifiers::NONE)))
}

fn screen(top: &Top, now_s: i64, (columns, rows): (u16, u16)) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw(frame, top, now_s)).unwrap();
    let cells = terminal.backend().buffer().content();
    let line =
        |line: &[ratatui::buffer::Cell]| line.iter().map(|cell| cell.symbol()).collect::<String>();
    let lines = cells.chunks(columns.into()).map(line);
    lines.map(|line| line.trim_end().to_owned()).collect()
}

fn shown() -> Top {
    let mut top = Top::new();
    top.height = 2;
    top.answered(look(fleet(), 100));
    top
}

#[test]
fn keys_choose_view_row_and_order() {
    for (keys, title, rows) in [
        ("", "buckets 1 of 3, down by REFUSED", ">cart pay api"),
        ("vv", "buckets 3 of 3, down by REFUSED", "cart pay >api"),
        ("vvvv^", "buckets 2 of 3, down by REFUSED", "cart >pay api"),
        ("r", "buckets 1 of 3, up by REFUSED", ">pay api cart"),
        ("vsss", "buckets 1 of 3, down by BUCKET", ">pay cart api"),
        ("/CA", "buckets 1 of 1, down by REFUSED, with CA", ">cart"),
        ("/q", "buckets none, down by REFUSED, with q", ""),
        (
            "/api_>s",
            "buckets 1 of 1, down by IN 5 MIN, with ap",
            ">api",
        ),
        ("/cart<", "buckets 1 of 3, down by REFUSED", ">cart pay api"),
        (">", "tenants of cart 1 of 2, down by LAW", ">default acme"),
        ("v><", "buckets 2 of 3, down by REFUSED", "cart >pay api"),
        (">v>", "why acme cart", "asking"),
        (">v><<", "buckets 1 of 3, down by REFUSED", ">cart pay api"),
        (
            "2",
            "tenants 1 of 4, down by LAW",
            ">default acme default acme",
        ),
        ("3>", "zones 1 of 2, up by ZONE", ">east/n west/n"),
        ("4", "problems", "warning: make"),
    ] {
        let mut top = shown();
        assert!(!press(&mut top, keys), "{keys}");
        let lines = screen(&top, 100, (80, 24));
        assert_eq!(lines[3], title, "{keys}");
        let is_table = top.is_table();
        let body = lines[4 + usize::from(is_table)..23].iter();
        let names = body.filter_map(|line| line.split_whitespace().next());
        assert_eq!(names.collect::<Vec<_>>().join(" "), rows, "{keys}");
    }
}

#[test]
fn q_and_control_c_end_it() {
    assert!(press(&mut shown(), "q"));
    let mut typing = shown();
    assert!(!press(&mut typing, "/q"), "q is a letter of the filter");
    assert!(typing.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
}

#[test]
fn selected_row_outlives_answers() {
    let mut top = shown();
    press(&mut top, "v");
    let mut next = fleet();
    let named = |top: &Top| top.rows().0[top.rows().1].id[0].to_owned();
    next.buckets
        .get_mut("pay")
        .unwrap()
        .refusals_10_s
        .cluster_overload = 900;
    top.answered(look(next.clone(), 101));
    assert_eq!((named(&top).as_str(), top.rows().1), ("pay", 0));
    next.buckets.remove("pay");
    top.answered(look(next, 102));
    assert_eq!(named(&top), "api", "the row of its place");
    top.answered(look(Status::default(), 103));
    press(&mut top, "v>^");
    assert_eq!(top.rows().0.len(), 0);
}

#[test]
fn screen_of_80_columns_has_everything() {
    let mut top = shown();
    top.status.as_mut().unwrap().verdict = format!("1 problem: a\u{1b}[2J {}", "word ".repeat(20));
    let expected = [
        "1 problem: a?[2J word word word word word word word word word word word word",
        "word word word word word word word word",
        "3 buckets",
        "buckets 1 of 3, down by REFUSED",
        " BUCKET                    MODE      OFFER/s  LIMIT/s  REFUSED IN 5 MIN    WOULD",
        ">cart                      unknown         7      100   50.0 %    0.0 %    0.0 %",
        " pay                       unknown         9      100    0.0 %    0.0 %    0.0 %",
        " api                       unknown         5      100    0.0 %    0.0 %    0.0 %",
    ];
    let lines = screen(&top, 101, (80, 24));
    assert_eq!(lines[..8], expected);
    assert!(
        lines[23].starts_with("q quit") && lines[23].ends_with("/ find"),
        "{lines:?}"
    );
}

#[test]
fn old_answer_says_since_when() {
    let line = |top: &Top, now_s| screen(top, now_s, (80, 24))[2].clone();
    let mut top = Top::new();
    assert_eq!(line(&top, 100), "NO ANSWER: asking ..");
    top.answered(failed(
        "nothing answers at http://a:1: refused\n  = hint: x",
    ));
    assert_eq!(
        line(&top, 100),
        "NO ANSWER: nothing answers at http://a:1: refused"
    );
    top.answered(look(fleet(), 100));
    assert_eq!(line(&top, 104), "3 buckets");
    let old = "OLD since 1970-01-01T00:01:40Z, for 5 s: the controller has not answered yet";
    assert_eq!(line(&top, 105), old);
    top.answered(failed("no controller leads:\n  http://a:1: stands by"));
    assert_eq!(
        line(&top, 101),
        "OLD since 1970-01-01T00:01:40Z, for 1 s: no controller leads:"
    );
    top.answered(look(fleet(), 106));
    assert_eq!(line(&top, 106), "3 buckets");
}

#[test]
fn large_fleet_scrolls_by_pages() {
    let mut top = shown();
    let of = |at: u32| {
        (
            Bucket::new(&format!("b{at:05}")).unwrap(),
            bucket(0, 0.0, &[]),
        )
    };
    let buckets = (0..10_000).map(of).collect();
    top.answered(look(Status { buckets, ..fleet() }, 101));
    top.height = 18;
    for (key, title, first, last) in [
        (
            KeyCode::PageDown,
            "buckets 19 of 10000",
            ">b00018",
            " b00035",
        ),
        (KeyCode::End, "buckets 10000 of 10000", " b09990", ">b09999"),
        (
            KeyCode::PageUp,
            "buckets 9982 of 10000",
            " b09972",
            " b09989",
        ),
    ] {
        top.key(KeyEvent::new(key, KeyModifiers::NONE));
        let lines = screen(&top, 101, (80, 24));
        let rows: Vec<_> = lines[5..23]
            .iter()
            .filter(|line| !line.is_empty())
            .collect();
        assert!(lines[3].starts_with(title), "{lines:?}");
        assert!(
            rows[0].starts_with(first) && rows[rows.len() - 1].starts_with(last),
            "{rows:?}"
        );
    }
    for size in [(1, 1), (20, 3), (80, 6), (300, 100)] {
        screen(&top, 101, size);
    }
}
