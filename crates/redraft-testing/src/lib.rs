//! Test support: f32 reference forward, tiny model generator, tolerances
