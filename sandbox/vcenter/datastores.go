package main

import (
	"net/http"
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// cutOff says that a datastore of the VM cannot be reached from a host; mu is held.
func (s *Sim) cutOff(r, host ref) types.BaseMethodFault {
	vm := s.vm(r)
	if vm == nil {
		return nil
	}
	for _, one := range vm.Datastore {
		ds, ok := s.reg.Get(one).(*simulator.Datastore)
		if !ok {
			continue
		}
		lost, name := false, ""
		s.reg.WithLock(s.context(), ds.Self, func() {
			lost, name = !ds.Summary.Accessible, ds.Name
			for _, mount := range ds.Host {
				no := mount.MountInfo.Accessible
				lost = lost || mount.Key == host && no != nil && !*no
			}
		})
		if lost {
			return &types.InaccessibleDatastore{InvalidDatastore: types.InvalidDatastore{Datastore: &one, Name: name}}
		}
	}
	return nil
}

type accessBody struct {
	Host       string `json:"host"` // empty: every host
	Accessible bool   `json:"accessible"`
}

// datastoreDo takes a datastore from a host, or gives it back: a path that is down, an export that went.
func (c *Control) datastoreDo(r *http.Request) (int, any, error) {
	var body accessBody
	if err := readBody(r, &body); err != nil {
		return 0, nil, err
	}
	s := c.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.PathValue("name")
	for _, e := range s.reg.All("Datastore") {
		ds := e.(*simulator.Datastore)
		if ds.Name != name && ds.Self.Value != name {
			continue
		}
		host := ref{}
		if body.Host != "" {
			found, err := c.findHost(body.Host)
			if err != nil {
				return 0, nil, err
			}
			host = found
		}
		mounts := slices.Clone(ds.Host)
		anybody := false
		for i := range mounts {
			if body.Host == "" || mounts[i].Key == host {
				mounts[i].MountInfo.Accessible = types.NewBool(body.Accessible)
				mounts[i].MountInfo.InaccessibleReason = ""
				if !body.Accessible {
					mounts[i].MountInfo.InaccessibleReason = string(types.HostMountInfoInaccessibleReasonAllPathsDown_Start)
				}
			}
			anybody = anybody || *mounts[i].MountInfo.Accessible
		}
		s.update(s.context(), ds, change("host", mounts), change("summary.accessible", anybody))
		return http.StatusOK, map[string]any{"datastore": ds.Name, "accessible": anybody}, nil
	}
	return 0, nil, refuse(http.StatusNotFound, "there is no datastore %q", name)
}
