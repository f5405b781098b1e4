//! The routes, and the contract that is generated from them.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::{App, health, ids, layout, leases, metrics};

/// What the contract calls the bearer token.
const TOKEN: &str = "token";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Snowmint",
        description = "64-bit, time-sorted, unique IDs, minted under a lease; and leases for those that mint by \
                       themselves. Errors are problem documents (RFC 9457).",
    ),
    tags(
        (name = "ids", description = "IDs, and what they look like"),
        (name = "leases", description = "Worker codes for runtimes that cannot reach a lease store"),
        (name = "operations", description = "For whoever runs the service; never asks for a token"),
    ),
)]
struct Contract;

/// Every route. Fills in the app's `/openapi.json`.
pub(super) fn router(app: &Arc<App>) -> Router {
    let (router, mut api) = OpenApiRouter::with_openapi(Contract::openapi())
        .routes(routes!(ids::mint))
        .routes(routes!(ids::decode))
        .routes(routes!(layout::layout))
        .routes(routes!(leases::acquire))
        .routes(routes!(leases::renew, leases::release))
        .routes(routes!(metrics::metrics))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(openapi))
        .split_for_parts();
    if app.tokens.is_some() {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = api.components.get_or_insert_default();
        components.add_security_scheme(TOKEN, SecurityScheme::Http(scheme));
        let needed = || Some(vec![SecurityRequirement::new(TOKEN, Vec::<String>::new())]);
        for (path, item) in &mut api.paths.paths {
            let operations = [&mut item.get, &mut item.post, &mut item.put, &mut item.delete];
            for operation in operations.into_iter().flatten().filter(|_| path.starts_with("/v1/")) {
                operation.security = needed();
            }
        }
    }
    // What is written from its own types cannot fail; if it did, the route says so.
    if let Ok(text) = api.to_json() {
        let _ = app.openapi.set(Bytes::from(text));
    }
    router
        .fallback(|| async {
            Problem::new(StatusCode::NOT_FOUND, "no-such-path", "`/openapi.json` lists what there is")
        })
        .method_not_allowed_fallback(|method: Method| async move {
            let detail = format!("{method} is not among the methods that `Allow` names");
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail)
        })
        .with_state(Arc::clone(app))
}

/// This contract, generated from the code of the routes.
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "operations",
    responses((status = 200, description = "OpenAPI 3.1", body = Object, content_type = "application/json")),
)]
async fn openapi(State(app): State<Arc<App>>) -> Response {
    match app.openapi.get() {
        Some(text) => ([(header::CONTENT_TYPE, "application/json")], text.clone()).into_response(),
        None => {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            Problem::new(status, "openapi", "the contract could not be written").into_response()
        }
    }
}
