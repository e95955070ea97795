/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/doctor/doctor.h"

#include <inttypes.h>
#include <string.h>

gyre_status bench_expect_parse(const char *text, struct bench_expect *expect_out)
{
    const struct {
        const char *name;
        int64_t *number;
    } rows[] = {{"gpus", &expect_out->n_gpus},
                {"ports", &expect_out->n_ports},
                {"rate", &expect_out->gbit_per_s},
                {"mtu", &expect_out->mtu_bytes}};
    char *whole = NULL;
    *expect_out = (struct bench_expect){-1, -1, -1, -1};
    if (strchr(text, '=') == NULL && bench_read_all("", text, &whole) != BENCH_READ_OK)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--expect %s: neither NAME=NUMBER,... nor a file that can be read", text);
    BENCH_EACH_LINE(whole != NULL ? whole : bench_text("%s", text), line)
    {
        line[strcspn(line, "#")] = '\0';
        for (char *word = strtok(line, ", \t\r"); word != NULL; word = strtok(NULL, ", \t\r")) {
            const size_t n_name = strcspn(word, "=");
            bool is_good = false;
            for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
                if (strlen(rows[i].name) == n_name && strncmp(word, rows[i].name, n_name) == 0)
                    is_good = word[n_name] == '=' &&
                              bench_text_to_number(word + n_name + 1, rows[i].number) &&
                              *rows[i].number >= 0;
            if (!is_good)
                return gyre_fail(
                    GYRE_ERROR_INVALID_ARGUMENT,
                    "--expect: %s is none of gpus=N, ports=N, rate=GBIT_PER_S, mtu=BYTES", word);
        }
    }
    return GYRE_SUCCESS;
}

static void check_mtu(struct bench_doctor *doctor, const char *subject,
                      const struct bench_netdev *device)
{
    if (device != NULL && device->mtu < doctor->expect.mtu_bytes)
        bench_warn(doctor, subject, "ip link set dev NETDEV mtu 9000, and on its switch port",
                   "/sys/class/net/%s/mtu: %" PRId64 "; %" PRId64 " were expected", device->name,
                   device->mtu, doctor->expect.mtu_bytes);
}

void bench_check_host_expected(struct bench_doctor *doctor)
{
    const struct bench_expect *expect = &doctor->expect;
    const struct bench_netdev *first = bench_net_first(&doctor->machine);
    int n_gpus = 0;
    for (int i = 0; i < doctor->machine.n_pci; i++)
        n_gpus += doctor->machine.pci[i].is_gpu;
    if (expect->n_gpus < 0 && expect->n_ports < 0 && expect->gbit_per_s < 0 &&
        expect->mtu_bytes < 0) {
        bench_skip(doctor, "nothing is expected: --expect gpus=8,ports=8,rate=400,mtu=4200");
        return;
    }
    if (n_gpus < expect->n_gpus)
        bench_fail(doctor, "GPUs", "look at gpu.xid; nvidia-smi; dmesg | grep -i -e nvrm -e pcie",
                   "/sys/bus/pci/devices: %d GPUs, %" PRId64 " were expected", n_gpus,
                   expect->n_gpus);
    char missing[512] = "";
    int n_active = 0;
    for (int i = 0; i < doctor->machine.n_ports; i++) {
        const struct bench_rdma_port *port = &doctor->machine.ports[i];
        if (port->why_unused[0] != '\0' || !port->is_active) {
            bench_append(missing, sizeof(missing), " %s (%s)", port->name,
                         port->why_unused[0] != '\0' ? port->why_unused : port->state);
            continue;
        }
        n_active++;
        if (port->gbit_per_s < (double)expect->gbit_per_s)
            bench_warn(doctor, port->name,
                       "look at the cable and the switch port: mlxlink -d DEVICE",
                       "%s: %" PRId64 " Gbit/s were expected", port->rate, expect->gbit_per_s);
        if (port->is_roce)
            check_mtu(doctor, port->name, bench_net_find(&doctor->machine, port->netdev));
    }
    if (n_active < expect->n_ports)
        bench_fail(doctor, "ports", "look at rdma.devices, rdma.ports and rdma.hca",
                   "%d RDMA ports can be used, %" PRId64 " were expected; the others:%s", n_active,
                   expect->n_ports,
                   missing[0] != '\0' ? missing : " none is in /sys/class/infiniband");
    if (doctor->machine.n_used_ports == 0 && first != NULL)
        check_mtu(doctor, first->name, first);
    if (!bench_said(doctor))
        bench_ok(doctor, NULL, "all that --expect names is here: %d GPUs, %d RDMA ports in use",
                 n_gpus, doctor->machine.n_used_ports);
}
