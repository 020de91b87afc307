#include "conf/rules.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/check.h"

#define HOST_BYTES_MAX 253 /* RFC 1035 2.3.4, without the last dot */

const char *conf_rule_name(const char *text)
{
    if (!isalnum((unsigned char)text[0]))
        return "does not begin with a letter or digit";
    for (const char *p = text; *p != '\0'; p++) {
        if (!isalnum((unsigned char)*p) && strchr("._-", *p) == NULL)
            return "has a character that is not a letter, a digit or one of . _ -";
    }
    return NULL;
}

const char *conf_rule_file(const char *text)
{
    const char *const broken = conf_rule_name(text);
    const size_t len = strlen(text);

    if (broken != NULL)
        return broken;
    return len > 5 && strcmp(text + len - 5, ".json") == 0 ? NULL : "does not end in .json";
}

static const char *port_rule(const char *text, bool zero_is_fine)
{
    const char *const broken = zero_is_fine ? "has a port that is not a number from 0 to 65535"
                                            : "has a port that is not a number from 1 to 65535";
    unsigned long port = 0;
    size_t n = 0;

    for (; text[n] != '\0'; n++) {
        if (text[n] < '0' || text[n] > '9' || n == 5)
            return broken;
        port = port * 10 + (unsigned long)(text[n] - '0');
    }
    return n > 0 && port <= 65535 && (port > 0 || zero_is_fine) ? NULL : broken;
}

static const char *host_rule(const char *host, size_t len)
{
    char copy[HOST_BYTES_MAX + 1];
    struct in_addr v4;
    bool numeric = true;

    if (len == 0 || len > HOST_BYTES_MAX)
        return "has no host, or one over 253 bytes";
    for (size_t i = 0; i < len; i++) {
        if (!isalnum((unsigned char)host[i]) && host[i] != '.' && host[i] != '-' && host[i] != '_')
            return "has a host with a character that host names do not have";
        numeric = numeric && (isdigit((unsigned char)host[i]) || host[i] == '.');
    }
    snprintf(copy, sizeof(copy), "%.*s", (int)len, host);
    return numeric && inet_pton(AF_INET, copy, &v4) != 1 ? "has a host that is not an IPv4 address"
                                                         : NULL;
}

static const char *address_rule(const char *text, bool zero_is_fine)
{
    const char *const colon = strrchr(text, ':');
    const char *broken = NULL;

    if (strncmp(text, "unix:", 5) == 0) {
        if (text[5] != '/')
            return "is not unix:/path with an absolute path";
        return strlen(text + 5) < sizeof(((struct sockaddr_un *)0)->sun_path)
                   ? NULL
                   : "has a path over the limit of 107 bytes";
    }
    if (colon == NULL)
        return "is not host:port";
    if (text[0] == '[') {
        char copy[INET6_ADDRSTRLEN];
        struct in6_addr v6;
        const char *const end = strchr(text, ']');

        if (end == NULL || end + 1 != colon)
            return "is not [ipv6]:port";
        snprintf(copy, sizeof(copy), "%.*s", (int)(end - text - 1), text + 1);
        if (inet_pton(AF_INET6, copy, &v6) != 1)
            return "has a host that is not an IPv6 address";
    } else {
        broken = host_rule(text, (size_t)(colon - text));
    }
    return broken != NULL ? broken : port_rule(colon + 1, zero_is_fine);
}

const char *conf_rule_endpoint(const char *text)
{
    return address_rule(text, false);
}

const char *conf_rule_listen(const char *text)
{
    return address_rule(text, true);
}

const char *conf_rule_admin(const char *text)
{
    return text[0] == '\0' ? NULL : address_rule(text, true);
}

const char *conf_rule_host(const char *text)
{
    struct in6_addr v6;

    if (text[0] == '\0' || inet_pton(AF_INET6, text, &v6) == 1)
        return NULL;
    return text[0] == '.' ? "begins with a dot" : host_rule(text, strlen(text));
}

const char *conf_rule_service(const char *text)
{
    bool begin = true;

    if (strcmp(text, "*") == 0)
        return NULL;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '.' && !begin) {
            begin = true;
        } else if (isalpha((unsigned char)*p) || *p == '_' ||
                   (isdigit((unsigned char)*p) && !begin)) {
            begin = false;
        } else {
            return "is not the full name of a gRPC service, package.Service, or \"*\"";
        }
    }
    return begin ? "is not the full name of a gRPC service, package.Service, or \"*\"" : NULL;
}

/* What the driver fills in; kept here because only a known word is filled in. */
static const char *const placeholders[] = {"address", "port",    "model",
                                           "version", "replica", "node"};

const char *conf_rule_argument(const char *text)
{
    for (const char *open = strchr(text, '{'); open != NULL; open = strchr(open + 1, '{')) {
        const size_t len = strspn(open + 1, "abcdefghijklmnopqrstuvwxyz0123456789_");
        bool known = false;

        /* Only {word}: braces of JSON or of a shell's ${word} are the command's own. */
        if (len == 0 || open[1 + len] != '}' || (open > text && open[-1] == '$'))
            continue;
        for (size_t i = 0; i < ARRAY_LEN(placeholders); i++)
            known = known || (strlen(placeholders[i]) == len &&
                              strncmp(placeholders[i], open + 1, len) == 0);
        if (!known)
            return "has a {word} that is not one of {address} {host} {port} {model} {version} "
                   "{replica} {node} {cards}";
    }
    return NULL;
}
