"""Lists for `_nodes` the keyword arguments of redis-py and valkey-py that are no parts of a node.

Owns which of them are refused where a node is given by such arguments, and which are left out.
"""

from __future__ import annotations

#: Those that a node may not have, with the reason.
NOT_FOLLOWED = {
    "connection_pool": "its connection_pool has settings of its own",
    "credential_provider": "its credential provider cannot be asked from here",
    "redis_connect_func": "a function of yours sets up its connections",
    "valkey_connect_func": "a function of yours sets up its connections",
}
#: Those that say neither where a node is nor who logs in, nor whom TLS trusts.
ELSEWHERE = frozenset(
    [
        "auto_close_connection_pool",
        "cache",
        "cache_allow_list",
        "cache_config",
        "cache_deny_list",
        "cache_enabled",
        "cache_max_size",
        "cache_policy",
        "cache_ttl",
        "charset",
        "client_cache",
        "client_name",
        "command_packer",
        "decode_responses",
        "driver_info",
        "encoding",
        "encoding_errors",
        "errors",
        "event_dispatcher",
        "health_check_interval",
        "himport_registry",
        "legacy_responses",
        "lib_name",
        "lib_version",
        "maint_notifications_config",
        "maint_notifications_pool_handler",
        "maintenance_notification_hash",
        "maintenance_state",
        "max_connections",
        "orig_host_address",
        "orig_socket_connect_timeout",
        "orig_socket_timeout",
        "oss_cluster_maint_notifications_handler",
        "parser_class",
        "protocol",
        "retry",
        "retry_on_error",
        "retry_on_timeout",
        "single_connection_client",
        "socket_connect_timeout",
        "socket_keepalive",
        "socket_keepalive_options",
        "socket_read_size",
        "socket_timeout",
        "socket_type",
        "ssl_ca_path",
        "ssl_ciphers",
        "ssl_exclude_verify_flags",
        "ssl_include_verify_flags",
        "ssl_min_version",
        "ssl_ocsp_context",
        "ssl_ocsp_expected_cert",
        "ssl_password",
        "ssl_validate_ocsp",
        "ssl_validate_ocsp_stapled",
        "timeout",
    ]
)
