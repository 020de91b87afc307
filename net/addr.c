#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "net/conn.h"

#define USER_TIMEOUT_MS  60000 /* unacknowledged bytes for so long: the peer is gone */
#define KEEPALIVE_IDLE_S 30
#define KEEPALIVE_EACH_S 10
#define KEEPALIVE_PROBES 3
#define LISTEN_BACKLOG   1024

static int parse_unix(struct net_addr *a, const char *path, struct err *err)
{
    struct sockaddr_un *un = (struct sockaddr_un *)&a->sa;
    const size_t len = strlen(path);

    if (len == 0 || len >= sizeof(un->sun_path))
        return err_set(err, -EINVAL, "unix:%s: a path has 1 to %zu bytes", path,
                       sizeof(un->sun_path) - 1);
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, path, len + 1);
    a->sa_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + 1);
    if (snprintf(a->text, sizeof(a->text), "unix:%s", path) >= (int)sizeof(a->text))
        return err_set(err, -EINVAL, "unix:%s: over %zu bytes", path, sizeof(a->text) - 1);
    return 0;
}

/* Splits "host:port" and "[host]:port"; the parts are copied. */
static int split_host_port(const char *text, char *host, size_t host_size, const char **ret_port,
                           struct err *err)
{
    const char *colon = strrchr(text, ':');
    const char *from = text, *to = colon;

    if (colon == NULL || colon[1] == '\0')
        return err_set(err, -EINVAL,
                       "%s: no port; an address is HOST:PORT, [IPV6]:PORT or unix:PATH", text);
    if (*text == '[') {
        if (colon == text || colon[-1] != ']')
            return err_set(err, -EINVAL, "%s: '[' without ']:PORT'", text);
        from++;
        to--;
    } else if (memchr(text, ':', (size_t)(colon - text)) != NULL) {
        return err_set(err, -EINVAL, "%s: an IPv6 address goes in brackets, [ADDRESS]:PORT", text);
    }
    if ((size_t)(to - from) >= host_size)
        return err_set(err, -EINVAL, "%s: host name over %zu bytes", text, host_size - 1);
    memcpy(host, from, (size_t)(to - from));
    host[to - from] = '\0';
    *ret_port = colon + 1;
    return 0;
}

/* text: "" as host means all addresses. Port 0..65535, 0: the kernel picks. */
int net_addr_parse(struct net_addr *ret_addr, const char *text, struct err *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *ai = NULL;
    char host[256], *rest;
    const char *port = NULL;
    unsigned long n;
    int r;

    memset(ret_addr, 0, sizeof(*ret_addr));
    if (strncmp(text, "unix:", 5) == 0)
        return parse_unix(ret_addr, text + 5, err);
    r = split_host_port(text, host, sizeof(host), &port, err);
    if (r != 0)
        return r;
    n = strtoul(port, &rest, 10);
    if (*rest != '\0' || *port < '0' || *port > '9' || n > 65535)
        return err_set(err, -EINVAL, "%s: port \"%s\" is not a number of 0 to 65535", text, port);
    r = getaddrinfo(host[0] != '\0' ? host : NULL, port, &hints, &ai);
    if (r != 0)
        return err_set(err, -EINVAL, "%s: %s", text, gai_strerror(r));
    memcpy(&ret_addr->sa, ai->ai_addr, ai->ai_addrlen);
    ret_addr->sa_len = ai->ai_addrlen;
    freeaddrinfo(ai);
    if (snprintf(ret_addr->text, sizeof(ret_addr->text), "%s", text) >= (int)sizeof(ret_addr->text))
        return err_set(err, -EINVAL, "%s: over %zu bytes", text, sizeof(ret_addr->text) - 1);
    return 0;
}

void net_addr_host(const struct net_addr *addr, char *dst, size_t size)
{
    const char *port;

    if (strncmp(addr->text, "unix:", 5) == 0 ||
        split_host_port(addr->text, dst, size, &port, NULL) != 0)
        dst[0] = '\0';
}

static void addr_text(struct net_addr *a)
{
    char ip[INET6_ADDRSTRLEN];

    switch (a->sa.ss_family) {
    case AF_INET: {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&a->sa;

        inet_ntop(AF_INET, &in->sin_addr, ip, sizeof(ip));
        snprintf(a->text, sizeof(a->text), "%s:%u", ip, ntohs(in->sin_port));
        break;
    }
    case AF_INET6: {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&a->sa;

        inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof(ip));
        snprintf(a->text, sizeof(a->text), "[%s]:%u", ip, ntohs(in6->sin6_port));
        break;
    }
    default: {
        const struct sockaddr_un *un = (const struct sockaddr_un *)&a->sa;
        const size_t head = offsetof(struct sockaddr_un, sun_path);

        if (a->sa_len > head)
            snprintf(a->text, sizeof(a->text), "unix:%.*s", (int)(a->sa_len - head), un->sun_path);
        else
            snprintf(a->text, sizeof(a->text), "unix:");
    }
    }
}

void net_addr_of_socket(int fd, struct net_addr *ret_addr)
{
    memset(ret_addr, 0, sizeof(*ret_addr));
    ret_addr->sa_len = sizeof(ret_addr->sa);
    if (getsockname(fd, (struct sockaddr *)&ret_addr->sa, &ret_addr->sa_len) == 0)
        addr_text(ret_addr);
}

void net_addr_of_peer(int fd, struct net_addr *ret_addr)
{
    memset(ret_addr, 0, sizeof(*ret_addr));
    ret_addr->sa_len = sizeof(ret_addr->sa);
    if (getpeername(fd, (struct sockaddr *)&ret_addr->sa, &ret_addr->sa_len) == 0)
        addr_text(ret_addr);
}

int net_accept(int fd, struct net_addr *ret_peer)
{
    int r;

    memset(ret_peer, 0, sizeof(*ret_peer));
    ret_peer->sa_len = sizeof(ret_peer->sa);
    r = accept4(fd, (struct sockaddr *)&ret_peer->sa, &ret_peer->sa_len,
                SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (r >= 0)
        addr_text(ret_peer);
    return r;
}

/* A socket file that nobody listens on any more is in the way of bind. */
static void unlink_stale_socket(const struct net_addr *addr)
{
    const struct sockaddr_un *un = (const struct sockaddr_un *)&addr->sa;
    struct stat st;
    int fd;

    if (stat(un->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode))
        return;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    if (connect(fd, (const struct sockaddr *)&addr->sa, addr->sa_len) != 0 && errno == ECONNREFUSED)
        unlink(un->sun_path);
    close(fd);
}

void net_tune_socket(int fd, int family)
{
    const int on = 1, user_ms = USER_TIMEOUT_MS, idle_s = KEEPALIVE_IDLE_S;
    const int each_s = KEEPALIVE_EACH_S, probes = KEEPALIVE_PROBES;

    if (family == AF_UNIX)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof(user_ms));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &each_s, sizeof(each_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

int net_listen(const struct net_addr *addr, bool reuse_port, struct err *err)
{
    const int family = addr->sa.ss_family;
    const int on = 1;
    int fd, r;

    if (family == AF_UNIX)
        unlink_stale_socket(addr);
    fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set(err, -errno, "listen on %s: %s", addr->text, strerror(errno));
    if (family != AF_UNIX) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (reuse_port && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0)
            goto fault;
        net_tune_socket(fd, family);
    }
    if (bind(fd, (const struct sockaddr *)&addr->sa, addr->sa_len) != 0)
        goto fault;
    if (listen(fd, LISTEN_BACKLOG) != 0)
        goto fault;
    return fd;

fault:
    r = -errno;
    close(fd);
    return err_set(err, r, "listen on %s: %s", addr->text, strerror(-r));
}
