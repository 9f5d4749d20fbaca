//! Requests that are under way on a connection: from when the head is there until the response is taken.

use crate::answer::Body as Whole;
use crate::connections::Place;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A request that is under way, until this is dropped.
pub struct Served(Arc<Place>);

impl Served {
    /// Begins to serve a request on a connection.
    pub fn begin(place: Arc<Place>) -> Served {
        place.is_busy();
        Served(place)
    }

    /// Returns the body of its response, until which is taken it is under way.
    pub fn until_taken(self, body: Whole) -> Taken {
        Taken { body, _served: self }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.is_silent();
    }
}

/// The body of a response.
pub struct Taken {
    body: Whole,
    _served: Served,
}

impl Body for Taken {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
