//! The manual: what the protocol does and why, and a glossary, for those who want to trust it. Documentation only.

pub mod algorithm;
pub mod defaults;
pub mod glossary;
pub mod past_bugs;
pub mod safety;
