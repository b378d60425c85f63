//! The status codes of gRPC: their labels in metrics, and which of them are failures of the service.

pub(super) const LABELS: [&str; 17] = [
    "grpc_ok",
    "grpc_cancelled",
    "grpc_unknown",
    "grpc_invalid_argument",
    "grpc_deadline_exceeded",
    "grpc_not_found",
    "grpc_already_exists",
    "grpc_permission_denied",
    "grpc_resource_exhausted",
    "grpc_failed_precondition",
    "grpc_aborted",
    "grpc_out_of_range",
    "grpc_unimplemented",
    "grpc_internal",
    "grpc_unavailable",
    "grpc_data_loss",
    "grpc_unauthenticated",
];

/// The code UNKNOWN, also for missing, malformed and undefined codes.
pub const GRPC_UNKNOWN: u8 = 2;

/// The codes that count as failures of the service, like the HTTP statuses from 500: UNKNOWN,
/// `DEADLINE_EXCEEDED`, UNIMPLEMENTED, INTERNAL, UNAVAILABLE and `DATA_LOSS`. The same six are errors of a server in
/// OpenTelemetry's conventions.
pub(super) const FAILURES: [u8; 6] = [GRPC_UNKNOWN, 4, 12, 13, 14, 15];

#[inline]
pub(super) const fn place(code: u8) -> usize {
    if (code as usize) < LABELS.len() {
        code as usize
    } else {
        GRPC_UNKNOWN as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn labels_are_the_names_of_the_codes() {
        for (code, label) in LABELS.iter().enumerate() {
            let name: String = format!("{:?}", Code::from_i32(code as i32));
            let words: String = name
                .chars()
                .enumerate()
                .flat_map(|(at, c)| {
                    (at > 0 && c.is_uppercase())
                        .then_some('_')
                        .into_iter()
                        .chain(c.to_lowercase())
                })
                .collect();
            assert_eq!(*label, format!("grpc_{words}"));
        }
        assert_eq!(LABELS[place(17)], "grpc_unknown");
        assert_eq!(
            FAILURES.map(|code| LABELS[place(code)]),
            [
                "grpc_unknown",
                "grpc_deadline_exceeded",
                "grpc_unimplemented",
                "grpc_internal",
                "grpc_unavailable",
                "grpc_data_loss",
            ]
        );
    }
}
