# shellcheck shell=bash
# DevStack plugin: shared-scheduler takes the place of n-sch, and compute-agent runs beside n-cpu.
#
#   enable_plugin shared-scheduler URL-OF-THIS-REPOSITORY
#
# n-sch has to stay enabled while nova is configured; this plugin stops it.

function install_shared_scheduler {
    local extras=()
    is_service_enabled ssched && extras+=(scheduler)
    is_service_enabled ssched-agent && extras+=(agent)
    setup_develop "$SHARED_SCHEDULER_DIR" "$(IFS=,; echo "${extras[*]}")"
}

function configure_shared_scheduler {
    if is_service_enabled ssched; then
        sudo install -d -o "$STACK_USER" /run/shared-scheduler
        iniset "$NOVA_CONF" shared_scheduler mode "$SHARED_SCHEDULER_MODE"
        is_service_enabled placement-api && iniset "$PLACEMENT_CONF" placement allocation_conflict_retry_count 1
    fi
    if is_service_enabled ssched-agent; then
        iniset "$NOVA_CPU_CONF" compute_agent tap_enabled true
    fi
}

function start_shared_scheduler {
    if is_service_enabled ssched; then
        [[ "$SHARED_SCHEDULER_MODE" == active ]] && stop_process n-sch
        run_process ssched "$(command -v shared-scheduler) --config-file $NOVA_CONF"
    fi
    if is_service_enabled ssched-agent; then
        run_process ssched-agent "$(command -v compute-agent) --config-file $NOVA_CPU_CONF"
    fi
}

function stop_shared_scheduler {
    stop_process ssched
    stop_process ssched-agent
}

case "$1 ${2:-}" in
    "stack install") install_shared_scheduler ;;
    "stack post-config") configure_shared_scheduler ;;
    "stack extra") start_shared_scheduler ;;
    "unstack ") stop_shared_scheduler ;;
esac
