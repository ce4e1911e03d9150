//! Tolerances, skips and the generator of random values.

use std::process::Command;

use redraft_testing::{
    Prng, Skip, Tolerance, assert_close, declared_skip, declared_skips, fnv1a, shared_data,
};

#[test]
fn tolerance_accepts_inside_and_names_the_worst_outside() {
    let expected = [1.0, -2.0, 0.0, 4.0];
    let near = [1.0001, -2.0, 0.0001, 4.0];
    let difference = Tolerance::F32.compare(&near, &expected).unwrap();
    assert_eq!(difference.index, 0, "of two equal distances the first is reported");
    assert!(difference.nmse < 1e-8 && difference.excess < 1.0, "{difference}");

    let far = [1.0, -2.0, 0.0, 4.5];
    let error = Tolerance::F16.compare(&far, &expected).unwrap_err().to_string();
    for part in ["worst at [3] of 4", "found 4.5e0", "expected 4e0", "NMSE"] {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
    assert!(Tolerance::EXACT.compare(&expected, &expected).is_ok(), "equal values are within zero");
    assert!(Tolerance::EXACT.compare(&near, &expected).is_err(), "zero tolerance allows nothing");
}

#[test]
fn a_small_error_everywhere_fails_by_its_mean_square() {
    let expected: Vec<f32> = (0..100).map(|_| 1.0).collect();
    let found: Vec<f32> = expected.iter().map(|x| x * 1.001).collect();
    let error = Tolerance::F32.compare(&found, &expected).unwrap_err();
    assert!(error.excess < 1.0 && error.nmse > 9e-7, "elementwise inside, NMSE outside: {error}");
    assert!(Tolerance::F16.compare(&found, &expected).is_err() == (error.nmse > 1e-6), "{error}");
}

#[test]
fn non_finite_values_only_match_themselves() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    assert!(Tolerance::F32.compare(&[inf, nan, 1.0], &[inf, nan, 1.0]).is_ok(), "identical");
    for (found, expected) in [(inf, 1.0), (1.0, inf), (nan, 1.0), (1.0, nan), (inf, -inf), (nan, inf)] {
        let error = Tolerance::within(1e30).compare(&[2.0, found], &[2.0, expected]).unwrap_err();
        assert_eq!(error.index, 1, "{found} against {expected}");
    }
}

#[test]
fn lengths_and_zero_vectors_are_judged_too() {
    assert!(Tolerance::F16.compare(&[1.0], &[1.0, 2.0]).unwrap_err().to_string().contains("found 1 values"));
    assert!(Tolerance::F32.compare(&[], &[]).is_ok(), "nothing differs from nothing");
    assert!(Tolerance::F32.compare(&[0.0, 1e-7], &[0.0, 0.0]).is_ok(), "inside the absolute limit");
    assert!(Tolerance::F32.compare(&[0.0, 1e-3], &[0.0, 0.0]).is_err(), "outside the absolute limit");
}

#[test]
#[should_panic(expected = "gate: worst at [1] of 2")]
fn assert_close_panics_with_the_name() {
    assert_close("gate", &[1.0, 2.0], &[1.0, 3.0], Tolerance::F32);
}

/// Declares skips in a process of their own: those of a test run are counted, and these are none.
#[test]
fn skips_are_printed_logged_and_recorded() {
    let log = std::env::temp_dir().join(format!("redraft-skips-{}.tsv", std::process::id()));
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "declares_skips", "--ignored"])
        .env("REDRAFT_SKIP_LOG", &log)
        .output()
        .unwrap();
    let logged = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    // Printed although the test harness captures what tests print.
    assert!(stderr.contains("SKIP support: example: only to test skipping"), "{stderr}");
    assert!(stderr.contains("SKIP support: missing: ../shared/data/no/such/file"), "{stderr}");
    assert!(logged.starts_with("support: example\tonly to test skipping\nsupport: missing\t"), "{logged:?}");
}

#[test]
#[ignore = "run by skips_are_printed_logged_and_recorded, in a process of its own"]
fn declares_skips() {
    assert_eq!(declared_skips(), []);
    declared_skip("support: example", "only to test skipping");
    let missing = shared_data(env!("CARGO_MANIFEST_DIR"), "no/such/file", "support: missing");
    assert_eq!(missing, None);
    let first = Skip { what: "support: example".to_owned(), why: "only to test skipping".to_owned() };
    assert_eq!(declared_skips().len(), 2);
    assert_eq!(declared_skips().first(), Some(&first));
}

/// Values of the published SplitMix64 and FNV-1a test vectors.
#[test]
fn generator_and_hash_are_the_published_ones() {
    let mut prng = Prng::new(1_234_567);
    let found = [prng.bits(), prng.bits(), prng.bits()];
    assert_eq!(found, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    assert_eq!(fnv1a(b""), 0xCBF2_9CE4_8422_2325);
    assert_eq!(fnv1a(b"foobar"), 0x8594_4171_F739_67E8);
}

#[test]
fn signed_values_fill_their_range_evenly() {
    let values = Prng::new(3).signed_values(100_000, 2.0);
    assert!(values.iter().all(|value| (-2.0..2.0).contains(value)), "a value is out of range");
    let mean = values.iter().sum::<f32>() / 100_000.0;
    let square = values.iter().map(|value| value * value).sum::<f32>() / 100_000.0;
    assert!(mean.abs() < 0.02 && (square - 4.0 / 3.0).abs() < 0.02, "mean {mean}, mean square {square}");
    assert_ne!(Prng::named(3, "a").bits(), Prng::named(3, "b").bits());
    let mut prng = Prng::new(8);
    assert!((0..1000).all(|_| prng.below(7) < 7), "below its bound");
    assert_eq!(prng.below(0), 0);
}
