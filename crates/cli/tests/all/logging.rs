//! Log lines: `-v` and `RUST_LOG`.

use crate::programs::place;

/// Standard output without the time of the evaluation.
fn untimed(out: &str) -> String {
    out.lines().filter(|line| !line.ends_with(" ms")).collect::<Vec<_>>().join("\n")
}

const RUN: &str = "run add.mil -i x=1 -i z=1";

#[test]
fn verbose_runs_log_to_standard_error_and_leave_standard_output_alone() {
    let place = place();
    let quiet = place.run(RUN).ok();
    assert_eq!(quiet.err, "");
    for line in [format!("-v {RUN}"), format!("{RUN} -v")] {
        let logged = place.run(&line).ok();
        assert_eq!(untimed(&logged.out), untimed(&quiet.out), "{line}");
        for span in ["compile{label=add.mil", "load{key="] {
            let found = logged.err.lines().any(|l| l.contains(span) && l.contains("ferrane::device: close"));
            assert!(found, "{line}: no `{span}` in: {}", logged.err);
        }
        assert!(!logged.err.contains("evaluate"), "{}", logged.err);
    }
}

#[test]
fn a_filter_selects_targets_and_levels() {
    let place = place();
    let run = |filter: &str| crate::place::Outcome::of(place.command(RUN).env("RUST_LOG", filter));
    let all = run("ferrane::device=trace").ok();
    assert!(all.err.contains("prepare{") && all.err.contains("evaluate: ferrane::device: close"), "{}", all.err);
    assert_eq!(run("ferrane::train=trace").ok().err, "");
    run("ferrane=loud").refused(1, &["RUST_LOG", "ferrane=loud", "docs/logging.md"]);
}
