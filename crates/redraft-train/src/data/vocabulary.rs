//! Which tokens a drafter proposes.

use crate::error::TrainError;

/// The `size` tokens that occur most often in `counts` (`[vocab]`), ascending. Equal counts, zero among them, go by id:
/// vocabularies that were merged from bytes list what is frequent first.
///
/// # Errors
/// [`TrainError::Setting`] when `size` is 0 or above the vocabulary.
pub fn draft_vocabulary(counts: &[u64], size: usize) -> Result<Vec<u32>, TrainError> {
    if !(1..=counts.len()).contains(&size) {
        return Err(TrainError::setting("--draft-vocab", format!("1 to {}", counts.len()), size));
    }
    let mut ids: Vec<u32> = (0_u32..).take(counts.len()).collect();
    ids.sort_by_key(|&id| (std::cmp::Reverse(counts[id as usize]), id));
    ids.truncate(size);
    ids.sort_unstable();
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::draft_vocabulary;

    #[test]
    fn the_most_frequent_tokens_then_the_first() {
        assert_eq!(draft_vocabulary(&[0, 5, 0, 9, 0, 5], 4).unwrap(), [0, 1, 3, 5]);
        assert_eq!(draft_vocabulary(&[0, 5, 0, 9, 0, 5], 2).unwrap(), [1, 3]);
        assert!(draft_vocabulary(&[1, 2], 3).is_err());
        assert!(draft_vocabulary(&[1, 2], 0).is_err());
    }
}
