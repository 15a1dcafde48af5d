package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

const internalKey = "hostler-sandbox"

const (
	outageRefuse = "refuse" // nobody listens
	outage503    = "503"    // the proxy in front of a vCenter that starts
	outageHang   = "hang"   // connections are taken, nothing is answered
)

// api is the SOAP server on its port. It can go away and come back, which the stock one cannot.
type api struct {
	address string
	handler http.Handler
	tls     *tls.Config
	shown   *shown

	mu     sync.Mutex
	server *http.Server
	mode   string // empty: in service
	over   chan struct{}
	timer  *time.Timer
}

// open listens and serves. The port was ours a moment ago, so a short wait gets it back.
func (a *api) open() error {
	var listener net.Listener
	var err error
	for range 10 {
		if listener, err = net.Listen("tcp", a.address); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	a.server = &http.Server{Handler: http.HandlerFunc(a.serve), ReadHeaderTimeout: time.Minute}
	go func(s *http.Server) {
		if err := s.Serve(tls.NewListener(listener, a.tls)); !errors.Is(err, http.ErrServerClosed) {
			log.Printf("the vCenter API stopped: %v", err)
		}
	}(a.server)
	return nil
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	mode, over := a.mode, a.over
	a.mu.Unlock()
	switch mode {
	case outage503:
		http.Error(w, "503 Service Unavailable", http.StatusServiceUnavailable)
	case outageHang:
		select {
		case <-over:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler) // whatever was asked is not answered any more
	default:
		if r.URL.Path == publishedPath {
			a.shown.publish(w, r)
			return
		}
		a.handler.ServeHTTP(w, r)
	}
}

// renew shows another certificate from now on; connections are cut, as when vCenter's services restart.
func (a *api) renew(pair *tls.Certificate) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shown.set(pair)
	if a.mode == outageRefuse {
		return nil
	}
	_ = a.server.Close()
	return a.open()
}

// down takes the API away; negative seconds: until somebody ends it. What is under way is cut off.
func (a *api) down(mode string, length float64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mode != "" {
		return fmt.Errorf("there is an outage already")
	}
	a.mode, a.over = mode, make(chan struct{})
	_ = a.server.Close()
	if mode != outageRefuse {
		if err := a.open(); err != nil {
			log.Printf("the vCenter API cannot listen during its outage: %v", err)
			a.mode = outageRefuse // so that the end of it tries again
		}
	}
	if length >= 0 {
		over := a.over
		a.timer = time.AfterFunc(seconds(length), func() { a.up(over) })
	}
	log.Printf("outage (%s)", mode)
	return nil
}

// up ends an outage: the given one, or whichever there is with nil.
func (a *api) up(which chan struct{}) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mode == "" || which != nil && which != a.over {
		return false
	}
	if a.timer != nil {
		a.timer.Stop()
	}
	if a.mode == outageRefuse {
		if err := a.open(); err != nil {
			log.Printf("the vCenter API cannot come back on %s yet: %v", a.address, err)
			over := a.over
			a.timer = time.AfterFunc(time.Second, func() { a.up(over) })
			return false
		}
	}
	a.mode = ""
	close(a.over)
	log.Print("the outage is over")
	return true
}

func (a *api) inOutage() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mode
}

// sessions is what is known of logins.
type sessions struct {
	mu       sync.Mutex
	attempts int
	failures int
	expired  time.Time // logins from before this moment do not count any more
}

func (s *sessions) count(ok bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts++
	if !ok {
		s.failures++
	}
	return ok
}

// expireSessions ends every login; a wait that is under way ends with the fault the next call would get.
func (s *Sim) expireSessions() {
	s.sessions.mu.Lock()
	s.sessions.expired = time.Now()
	s.sessions.mu.Unlock()
	s.collectors.expire()
}

// current drops a session that has expired, and says what the call gets. Without a session only what
// a client needs to log in is answered; the stock simulator would also hand out the inventory.
func (s *Sim) current(ctx *simulator.Context, method *simulator.Method) types.BaseMethodFault {
	if ctx.Session != nil && ctx.Session.Key != internalKey {
		s.sessions.mu.Lock()
		late := ctx.Session.LoginTime.Before(s.sessions.expired)
		s.sessions.mu.Unlock()
		if late {
			s.reg.SessionManager().TerminateSession(s.context(), &types.TerminateSession{SessionId: []string{ctx.Session.Key}})
			ctx.Session = nil
		}
	}
	if ctx.Session != nil {
		return nil
	}
	switch method.Name {
	case "Login", "LoginByToken", "LoginExtensionByCertificate", "CloneSession", "RetrieveServiceContent", "RetrieveInternalContent":
		return nil
	case "RetrieveProperties", "RetrievePropertiesEx", "Fetch":
		if forEveryone(method) {
			return nil
		}
	}
	return &types.NotAuthenticated{NoPermission: types.NoPermission{Object: &method.This, PrivilegeId: "System.View"}}
}

// forEveryone says whether a read is only of what is open before the login.
func forEveryone(method *simulator.Method) bool {
	var sets []types.PropertyFilterSpec
	switch req := method.Body.(type) {
	case *types.RetrieveProperties:
		sets = req.SpecSet
	case *types.RetrievePropertiesEx:
		sets = req.SpecSet
	default:
		obj, _ := fetched(method)
		return open(obj)
	}
	for _, set := range sets {
		for _, o := range set.ObjectSet {
			if !open(o.Obj) || len(o.SelectSet) > 0 {
				return false
			}
		}
	}
	return true
}

func open(r ref) bool { return r.Type == "ServiceInstance" || r.Type == "SessionManager" }

// fetched is what a Fetch asks for: pyVmomi reads every single property with it. Its type is internal
// to the simulator, so it is read by reflection.
func fetched(method *simulator.Method) (ref, string) {
	v := reflect.ValueOf(method.Body)
	if method.Name != "Fetch" || v.Kind() != reflect.Pointer || v.IsNil() {
		return ref{}, ""
	}
	obj, _ := v.Elem().FieldByName("This").Interface().(ref)
	prop, _ := v.Elem().FieldByName("Prop").Interface().(string)
	return obj, prop
}

// fetchBody answers a Fetch with nothing: a property that has no value.
type fetchBody struct {
	Res *fetchResponse `xml:"urn:vim25 FetchResponse,omitempty"`
}

type fetchResponse struct {
	Returnval types.AnyType `xml:"returnval,typeattr,omitempty"`
}

func (b *fetchBody) Fault() *soap.Fault { return nil }

// Fetch is only ours for a client without a session that looks at its session: there is none, which
// vCenter says by an unset property where the stock simulator gives a fault.
func (c *calls) Fetch(_ *simulator.Context, _ any) soap.HasFault {
	return &fetchBody{Res: &fetchResponse{}}
}
