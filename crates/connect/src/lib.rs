//! Files, generators and their formats: the sources and sinks of the outside world.
