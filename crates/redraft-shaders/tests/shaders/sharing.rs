//! Texts are kept in pieces, each once, and come out as they went in.

use crate::pipeline::emit::share;
use crate::reflection::good;
use redraft_shaders::kernels;
use std::collections::HashSet;

#[test]
fn texts_come_out_as_they_went_in() {
    let linked = good();
    let mut texts: Vec<&str> = linked.iter().map(|kernel| kernel.wgsl.as_str()).collect();
    texts.extend(["", "a", "a\n\n", "a\n\na\n\n\n\nb", "\n\na"]);
    let shared = share(&texts).unwrap();
    assert_eq!(shared.orders.len(), texts.len(), "one order a text");
    for (text, order) in texts.iter().zip(&shared.orders) {
        let joined: String = order.iter().map(|&piece| shared.pieces[usize::from(piece)]).collect();
        assert_eq!(joined, *text, "put together again");
    }
    let distinct: HashSet<_> = shared.pieces.iter().collect();
    assert_eq!(distinct.len(), shared.pieces.len(), "each piece is kept once");
}

#[test]
fn more_pieces_than_indices_are_refused() {
    let texts: Vec<String> = (0..=65_536).map(|number| number.to_string()).collect();
    let all: Vec<&str> = texts.iter().map(String::as_str).collect();
    assert!(share(&all).is_none(), "one too many");
    assert!(share(&all[1..]).is_some(), "as many as there are indices");
}

#[test]
fn kernels_share_what_they_have_in_common() {
    let whole: usize = kernels().iter().map(|kernel| kernel.text.to_string().len()).sum();
    let pieces: usize = kernels()[0].text.pieces.iter().map(|piece| piece.len()).sum();
    assert!(pieces * 10 < whole, "{pieces} bytes of pieces for {whole} of text");
}
