/* The limit of descriptors and what happens near it (descriptors.h). */
#include "server/descriptors.h"

#include <event2/listener.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { BACKLOG = 1024 /* connections that come at once and are not accepted yet */ };

void descriptors_raise(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit); /* else it stays as it was */
}

/* The lowest free number is given out, so a number near the limit means that nearly all are taken. */
int descriptors_scarce(int fd) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    return limit.rlim_cur != RLIM_INFINITY && (rlim_t)fd + SERVER_SPARE_DESCRIPTORS >= limit.rlim_cur;
}

static void on_accept_error(struct evconnlistener *listener, void *argument) {
    (void)argument;
    evconnlistener_disable(listener);
}

void descriptors_guard(struct evhttp_bound_socket *socket) {
    listen(evhttp_bound_socket_get_fd(socket), BACKLOG); /* again, to say how many */
    evconnlistener_set_error_cb(evhttp_bound_socket_get_listener(socket), on_accept_error);
}

void descriptors_tick(struct evhttp_bound_socket *socket) {
    if (socket) evconnlistener_enable(evhttp_bound_socket_get_listener(socket));
}
