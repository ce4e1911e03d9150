//! Is this the drafter of this model?

use redraft_drafter::{DrafterError, TargetFingerprint, Warning};
use redraft_gguf::{GgmlType, Gguf, ModelConfig};
use redraft_testing::{RoleTypes, TinyDrafter, TinyModel};

fn of(model: &TinyModel, captures: [u32; 3]) -> TargetFingerprint {
    let file = model.to_gguf().unwrap();
    let gguf = pollster::block_on(Gguf::read(&file)).unwrap();
    TargetFingerprint::of(&gguf, &ModelConfig::from_gguf(&gguf).unwrap(), captures).unwrap()
}

#[test]
fn a_fingerprint_says_what_the_model_is() {
    let found = of(&TinyModel::default(), [0, 1, 2]);
    assert_eq!((found.architecture.as_str(), found.quantization.as_str()), ("llama", "Q4_1"));
    assert_eq!((found.hidden, found.layers, found.vocab), (64, 2, 320));
    // Of other weights, the same; this text is in files, so it may never change.
    assert_eq!(found, of(&TinyModel { seed: 9, ..TinyModel::default() }, [0, 1, 2]));
    assert_eq!(found.tokenizer, "2a9f517d206caa60df2224fd3f150d1e9182a9deec9fdc16289e6ba7eda0e7b6");
}

#[test]
fn another_model_is_refused_by_field_and_another_quantisation_is_a_warning() {
    let own = of(&TinyModel::default(), [0, 1, 2]);
    assert_eq!(own.check(&own).unwrap(), []);
    let q8 = TinyModel { types: RoleTypes::all(GgmlType::Q8_0), ..TinyModel::default() };
    let warnings = own.check(&of(&q8, [0, 1, 2])).unwrap();
    let expected = Warning::Quantization { expected: "Q4_1".into(), found: "Q8_0".into() };
    assert_eq!(warnings, [expected]);
    assert!(warnings[0].to_string().contains("Q8_0"), "{}", warnings[0]);

    let change = |change: fn(&mut TargetFingerprint)| {
        let mut other = own.clone();
        change(&mut other);
        match own.check(&other).unwrap_err() {
            DrafterError::Target { field, expected, found } => (field, expected, found),
            error => panic!("{error}"),
        }
    };
    let owned = |field, expected: &str, found: &str| (field, expected.to_owned(), found.to_owned());
    assert_eq!(change(|t| t.architecture = "qwen2".into()), owned("architecture", "llama", "qwen2"));
    assert_eq!(change(|t| t.hidden = 96), owned("hidden", "64", "96"));
    assert_eq!(change(|t| t.layers = 3), owned("layers", "2", "3"));
    assert_eq!(change(|t| t.vocab = 321), owned("vocab", "320", "321"));
    assert_eq!(change(|t| t.capture_layers = [0, 1, 3]), owned("capture_layers", "[0, 1, 2]", "[0, 1, 3]"));
    let other = of(&TinyModel { vocab: 321, ..TinyModel::default() }, [0, 1, 2]);
    assert_ne!(other.tokenizer, own.tokenizer, "one token more");
    let error = own.check(&TargetFingerprint { tokenizer: other.tokenizer, ..own.clone() }).unwrap_err();
    assert!(error.to_string().contains("target tokenizer"), "{error}");
}

#[test]
fn a_drafter_is_checked_with_or_without_a_fingerprint() {
    let model = of(&TinyModel::default(), [0, 1, 2]);
    let signed = TinyDrafter::default().to_file().unwrap();
    assert_eq!(signed.target(), Some(&model));
    assert_eq!(signed.check_target(&model).unwrap(), []);
    let moved = signed.with_capture_layers([0, 1, 2]).unwrap();
    assert_eq!(moved.check_target(&model).unwrap(), []);

    let unsigned = TinyDrafter { fingerprint: false, ..TinyDrafter::default() }.to_file().unwrap();
    assert_eq!(unsigned.check_target(&model).unwrap(), [Warning::NoFingerprint]);
    for (other, field) in [
        (TargetFingerprint { hidden: 96, ..model.clone() }, "hidden"),
        (TargetFingerprint { vocab: 384, ..model.clone() }, "vocab"),
        (TargetFingerprint { capture_layers: [0, 2, 3], layers: 3, ..model.clone() }, "capture_layers"),
        (TargetFingerprint { layers: 1, ..model.clone() }, "capture_layers"),
    ] {
        let error = unsigned.check_target(&other).unwrap_err().to_string();
        assert!(error.contains(field), "{field} is not in: {error}");
    }
}

/// Which model a drafter is for can be told without its weights.
#[test]
fn the_header_alone_says_what_a_drafter_is_for() {
    let header = |bytes: Vec<u8>| {
        let length = usize::try_from(u64::from_le_bytes(*bytes.first_chunk().unwrap())).unwrap();
        bytes[8..8 + length].to_vec()
    };
    let known = TinyDrafter::default().to_file().unwrap();
    assert_eq!(TargetFingerprint::of_header(&header(known.write())).unwrap().as_ref(), known.target());
    let unknown = TinyDrafter { fingerprint: false, ..TinyDrafter::default() }.to_file().unwrap();
    assert_eq!(TargetFingerprint::of_header(&header(unknown.write())).unwrap(), None);
    assert_eq!(TargetFingerprint::of_header(b"{}").unwrap(), None, "somebody's weights");
    for bad in [&b"{"[..], b"[]", br#"{"__metadata__": 1}"#, br#"{"__metadata__": {"redraft": "{}"}}"#] {
        assert!(TargetFingerprint::of_header(bad).is_err(), "{}", String::from_utf8_lossy(bad));
    }
}
