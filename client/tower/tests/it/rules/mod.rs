//! Rules of services with real routers: the paths that they compare, and requests that count for several buckets.

mod paths;
mod several;
