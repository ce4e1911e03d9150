//! A real model file, where one is at hand: every tensor packed and compared, in pieces as a loader reads them.

use redraft_gguf::{FileSource, Gguf, ModelConfig, ReadAt, dequantize, pack_rows, unpack_rows};

#[test]
fn every_tensor_of_a_real_file_comes_back() {
    let Some(path) = redraft_testing::model_path("every_tensor_of_a_real_file_comes_back") else {
        return;
    };
    let source = FileSource::open(path).unwrap();
    let gguf = pollster::block_on(Gguf::read(&source)).unwrap();
    let config = ModelConfig::from_gguf(&gguf).unwrap();
    eprintln!("{config:?}");
    // The facts of the default model, SmolLM2-135M-Instruct in Q4_1, known by its length.
    if source.size() == 98_362_432 {
        eprintln!("checking the shape of SmolLM2-135M");
        assert_eq!((config.layers, config.hidden, config.ffn, config.vocab), (30, 576, 1536, 49152));
        assert_eq!((config.heads, config.kv_heads, config.head_dim, config.context), (9, 3, 64, 8192));
        assert_eq!((config.rope.base, config.rms_eps), (1e5, 1e-5));
        assert!(config.tied_embeddings && !config.qkv_bias, "{config:?}");
    }
    let mut compared = 0;
    for tensor in &gguf.tensors {
        let columns = usize::try_from(tensor.columns()).unwrap();
        let row_bytes = usize::try_from(tensor.kind.row_bytes(tensor.columns()).unwrap()).unwrap();
        let mut rows = usize::try_from(tensor.rows()).unwrap();
        let mut offset = tensor.offset;
        while rows > 0 {
            let piece = rows.min(512);
            let mut bytes = vec![0; piece * row_bytes];
            pollster::block_on(source.read_at(offset, &mut bytes)).unwrap();
            let mut wanted = vec![0.0; piece * columns];
            dequantize(tensor.kind, &bytes, &mut wanted).unwrap();
            let (mut quants, mut scales) = (Vec::new(), Vec::new());
            let format = pack_rows(tensor.kind, columns, piece, &bytes, &mut quants, &mut scales).unwrap();
            let found = unpack_rows(format, columns, piece, &quants, &scales).unwrap();
            // Equality of values, which takes zeros of either sign as equal.
            assert!(found == wanted, "{}: {} rows before the end differ", tensor.name, rows);
            rows -= piece;
            offset += bytes.len() as u64;
            compared += found.len();
        }
    }
    eprintln!("{compared} weights of {} tensors are equal", gguf.tensors.len());
}
