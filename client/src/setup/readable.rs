//! The text of an error that `main` returns. Rust prints such an error by `Debug`, so `Debug` is made to read like
//! `Display`.

use std::error::Error;
use std::fmt;

/// Writes the text of an error, and of each cause that the text does not contain already.
pub fn write_readable(error: &dyn Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let of_cause = error.to_string();
        if !text.contains(&of_cause) {
            text = format!("{text}: {of_cause}");
        }
        cause = error.source();
    }
    f.write_str(&text)
}

/// Implements `Debug` of errors by [`write_readable`].
macro_rules! readable_debug {
    ($($error:ty),+ $(,)?) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::setup::write_readable(self, f)
            }
        }
    )+};
}
pub(crate) use readable_debug;

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use std::error::Error;

    use crate::{BucketError, BuildError, FeedError, Limiter};

    fn printed<E: Error + 'static>(error: E) -> String {
        let returned: Box<dyn Error> = error.into();
        format!("Error: {returned:?}")
    }

    #[derive(thiserror::Error)]
    #[error("the outer error")]
    struct Outer(#[source] std::io::Error);
    readable_debug!(Outer);

    #[test]
    fn errors_that_main_returns_read_as_text() {
        let address = || {
            Limiter::builder("shop")
                .aggregator("a:7410")
                .build_detached()
                .unwrap_err()
        };
        let name = || Limiter::builder("s h").build_detached().unwrap_err();
        let bucket = || {
            Limiter::builder("shop")
                .build_detached()
                .unwrap()
                .0
                .bucket("")
                .unwrap_err()
        };
        let _: (BuildError, BucketError) = (address(), bucket());
        for (text, expected) in [
            (printed(address()), address().to_string()),
            (printed(name()), name().to_string()),
            (printed(bucket()), bucket().to_string()),
            (
                printed(FeedError::NoRuntime),
                FeedError::NoRuntime.to_string(),
            ),
        ] {
            assert_eq!(text, format!("Error: {expected}"));
            assert!(
                !text.contains('{') && text.matches("a name").count() <= 1,
                "{text}"
            );
        }
        let outer = Outer(std::io::Error::other("the inner one"));
        assert_eq!(printed(outer), "Error: the outer error: the inner one");
    }
}
